"""Writes the client's types of what travels, made from the OpenAPI description, so that nobody keeps two in step.

usage: .venv/bin/python -m scripts.client_types          (`make client-types`; a test holds the files to be fresh)

Answers and bodies are in a module for each tag of the description, with the tag that has them first.
A schema `JobView` is `Job` here. Lists that the client hands over item by item have no type.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

from api.app import description

Schema = Mapping[str, Any]
FOLDER = Path(__file__).parents[1] / "gavel" / "client"
HEAD = '"""{}\n\nMade by scripts/client_types.py of the API\'s description: change that, then `make client-types`.\n"""'
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
REFERENCE = "#/components/schemas/"
ANSWERS = "answers"


def name_of(schema: str) -> str:
    """Return the name of a schema in the client."""
    return schema.removesuffix("View")


def references_in(schema: Any) -> set[str]:
    """Return the names of the schemas that a piece of the description refers to."""
    if isinstance(schema, list):
        return set().union(*map(references_in, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix(REFERENCE)} if "$ref" in schema else set()
    return own.union(*(references_in(each) for each in schema.values()))


def reachable(names: set[str], schemas: Mapping[str, Schema]) -> list[str]:
    """Return these schemas and all that they refer to, each after those that it refers to."""
    ordered: dict[str, None] = {}
    for name in sorted(names):
        ordered |= dict.fromkeys([*reachable(references_in(schemas[name]), schemas), name])
    return list(ordered)


def is_page(schema: Schema) -> bool:
    """Return whether a schema has items, the cursor of the next ones, and nothing else."""
    fields = set(schema.get("properties", ()))
    return "items" in fields and all(name == "items" or name.startswith("next_") for name in fields)


def type_of(field: Schema, *, is_answer: bool) -> str:
    """Return a field's type in Python; in a body Sequence and Mapping, so that a caller may give a tuple as well."""
    if "$ref" in field:
        return name_of(field["$ref"].removeprefix(REFERENCE))
    if values := field.get("enum", [field["const"]] if "const" in field else []):
        return f"Literal[{', '.join(map(repr, values))}]"
    if "anyOf" in field:
        return " | ".join(type_of(each, is_answer=is_answer) for each in field["anyOf"])
    if field.get("type") == "array":
        return f"{'list' if is_answer else 'Sequence'}[{type_of(field.get('items', {}), is_answer=is_answer)}]"
    if field.get("type") == "object":
        values = field.get("additionalProperties") or next(iter(field.get("patternProperties", {}).values()), {})
        value = type_of(values, is_answer=is_answer) if isinstance(values, dict) else "Any"
        return f"{'dict' if is_answer else 'Mapping'}[str, {value}]"
    return SIMPLE[field["type"]] if "type" in field else "Any"


def declared(name: str, schema: Schema, *, is_answer: bool) -> Iterator[str]:
    """Yield the lines that declare a schema: a TypedDict, or an alias of an enumeration."""
    if "enum" in schema:
        yield f"{name_of(name)} = {type_of(schema, is_answer=is_answer)}"
        yield fill(f'"""{one_line(schema["description"])}"""', 120)
        return
    yield f"class {name_of(name)}(TypedDict):"
    yield fill(f'    """{one_line(schema["description"])}"""', 120, subsequent_indent="    ") + "\n"
    for key, its in schema.get("properties", {}).items():
        kind = type_of(its, is_answer=is_answer)
        kind = kind if key in schema.get("required", ()) else f"NotRequired[{kind}]"
        yield from commented(f"    {key}: {kind}", one_line(its.get("description", "")))


def one_line(text: str) -> str:
    """Return the first paragraph of a text in one line."""
    return re.sub(r"\s+", " ", text.partition("\n\n")[0]).strip()


def commented(line: str, remark: str) -> Iterator[str]:
    """Yield the line of a field with its remark behind it, or above it where there is no room."""
    if remark and len(line) + len(remark) + 4 > 120:
        yield fill(remark, 120, initial_indent="    # ", subsequent_indent="    # ")
        remark = ""
    yield f"{line}  # {remark}" if remark else line


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package of types: its name, the title of its modules, and the module of each schema."""

    name: str
    title: str
    homes: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Return its name for imports."""
        return f"gavel.client.{self.name}"

    def add(self, names: Iterable[str], tag: str) -> None:
        """Give the schemas that have no module yet that of the tag."""
        for name in names:
            self.homes.setdefault(name, tag.replace(" ", "_"))

    def texts(self, schemas: Mapping[str, Schema]) -> Iterator[tuple[Path, str]]:
        """Yield the text of each of its modules by its path below gavel/client."""
        for home in dict.fromkeys(self.homes.values()):
            yield Path(self.name) / f"{home}.py", module(self, home, schemas)
        imports = [f"from {self.path}.{home} import {name_of(name)}" for name, home in self.homes.items()]
        listed = f"__all__ = {[name_of(name) for name in self.homes]}"
        yield Path(self.name) / "__init__.py", "\n".join([HEAD.format(f"{self.title}."), "", *imports, "", listed, ""])


def module(package: Package, home: str, schemas: Mapping[str, Schema]) -> str:
    """Return the text of one module of a package."""
    names = [name for name in package.homes if package.homes[name] == home]
    is_answer = package.name == ANSWERS
    lines = [line for name in names for line in ("", "", *declared(name, schemas[name], is_answer=is_answer))]
    body = "\n".join(lines)
    typing = [each for each in ("Any", "Literal", "NotRequired", "TypedDict") if re.search(rf"\b{each}\b", body)]
    abstract = [each for each in ("Mapping", "Sequence") if re.search(rf"\b{each}\[", body)]
    foreign = sorted(set().union(*(references_in(schemas[name]) for name in names)) - set(names))
    imports = [f"from collections.abc import {', '.join(abstract)}"] if abstract else []
    imports += [f"from typing import {', '.join(typing)}"]
    imports += [f"from {package.path}.{package.homes[each]} import {name_of(each)}" for each in foreign]
    title = f"{package.title} about {home.replace('_', ' ')}."
    return "\n".join([HEAD.format(title), "", *imports, body, ""])


def modules() -> dict[Path, str]:
    """Return the text of each file by its path below gavel/client."""
    described = description()
    schemas = described["components"]["schemas"]
    answers, bodies = (
        Package(name=ANSWERS, title="What the API answers"),
        Package(name="bodies", title="What the API is sent"),
    )
    for operation in (each for methods in described["paths"].values() for each in methods.values()):
        good, tag = [answer for status, answer in operation["responses"].items() if status < "3"], operation["tags"][0]
        bodies.add(reachable(references_in(operation.get("requestBody", {})), schemas), tag)
        answers.add((name for name in reachable(references_in(good), schemas) if not is_page(schemas[name])), tag)
    texts = dict([*bodies.texts(schemas), *answers.texts(schemas)])
    return {path: formatted(text) for path, text in texts.items()}


def formatted(text: str) -> str:
    """Return a text with its imports sorted, in the house style."""
    ruff, root = f"{sys.prefix}/bin/ruff", FOLDER.parents[1]
    for command in (["check", "--fix", "--select", "I,RUF022", "--quiet"], ["format", "--quiet"]):
        argv = [ruff, *command, "--stdin-filename", "gavel/client/made.py", "-"]
        text = subprocess.run(argv, input=text, cwd=root, capture_output=True, text=True, check=True, timeout=60).stdout
    return text


if __name__ == "__main__":
    for path, text in modules().items():
        (FOLDER / path).parent.mkdir(exist_ok=True)
        (FOLDER / path).write_text(text)
