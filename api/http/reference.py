"""The API description as a page for people: every operation by subject, with its fields, examples and answers."""

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
section { border-top: 1px solid #8886; padding: .6rem 0 } nav ul { columns: 22rem; padding-left: 1rem }
code, pre { font: 13px/1.5 ui-monospace, monospace } pre { overflow-x: auto; background: #8881; padding: .6rem }
"""
Operation = Mapping[str, Any]


def page(description: Mapping[str, Any]) -> str:
    """Return the page: HTML that loads no other file and runs no script. `description`: OpenAPI 3.1."""
    by_subject: dict[str, list[tuple[str, Operation]]] = {}
    for name, operation in _operations(description):
        by_subject.setdefault(operation.get("tags", ["service"])[0], []).append((name, operation))
    schemas = (
        f"<section id='{name}'><h3>{name}</h3><pre>{html.escape(json.dumps(schema, indent=2))}</pre></section>"
        for name, schema in sorted(description["components"]["schemas"].items())
    )
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Gavel API</title><style>{STYLE}</style>"
        f"<h1>Gavel API</h1><p>OpenAPI {description['openapi']}: <a href='/openapi.json'>openapi.json</a>."
        " The same from a terminal: <code>gavel --help</code>. <a href='/'>Dashboard</a></p>"
        f"<nav aria-label='Operations'>{''.join(_index(*each) for each in by_subject.items())}</nav>"
        f"{''.join(_subject(*each) for each in by_subject.items())}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _operations(description: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {html.escape(path)}", operation


def _index(subject: str, operations: list[tuple[str, Operation]]) -> str:
    links = (f"<li><a href='#{each['operationId']}'><code>{name}</code></a></li>" for name, each in operations)
    return f"<h3>{subject}</h3><ul>{''.join(links)}</ul>"


def _subject(subject: str, operations: list[tuple[str, Operation]]) -> str:
    return f"<h2>{subject}</h2>{''.join(_section(name, each) for name, each in operations)}"


def _section(name: str, operation: Operation) -> str:
    parameters = "".join(
        f"<li><code>{html.escape(each['name'])}</code> ({each['in']}) {html.escape(each.get('description', ''))}</li>"
        for each in operation.get("parameters", [])
    )
    body = _schema(operation.get("requestBody", {}))
    answers = ", ".join(f"{status} {_schema(each)}".strip() for status, each in sorted(operation["responses"].items()))
    return (
        f"<section id='{operation['operationId']}'><h3><code>{name}</code></h3>"
        f"<p>{html.escape(operation.get('description', ''))}</p><ul>{parameters}</ul>"
        f"{f'<p>Body: {body}.</p>' if body else ''}<p>Answers {answers}.</p></section>"
    )


def _schema(content: Mapping[str, Any]) -> str:
    """Return a link to the schema of a body or an answer; an empty text if it has no named schema."""
    reference = content.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = reference.rpartition("/")[2]
    return f"<a href='#{name}'>{name}</a>" if name else ""
