"""`gavel doctor`: what this machine offers, for an operator and for a report."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from gavel.cli import show
from gavel.cli.connection import app, connect, explain, is_known, settings
from gavel.cli.table import Rows
from gavel.client import GavelApiError, ServiceUnreachable


@app.command()
def doctor(
    service: Annotated[
        bool, typer.Option("--service", help="What the service finds on its own machine, and how you reach it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at this machine under its settings: workers, GPUs, cores, disk; and at nodes that the service cannot use.

    It changes nothing, and needs no service. The exit code is 1 if something is to be mended. Run it on each node, and
    paste it into a report.
    """
    from gavel.daemon.doctor import findings

    results = _of_service() if service else [*map(asdict, findings(settings())), *_nodes()]
    show.answer(results, as_json, _table)
    raise typer.Exit(int(any(each["verdict"] == "problem" for each in results)))


def _of_service() -> list[dict[str, Any]]:
    """Return what the service finds where it runs."""
    with connect() as client:
        return [dict(each) for each in client.findings()]


def _nodes() -> list[dict[str, Any]]:
    """Return what keeps nodes of the service from being used."""
    if not is_known():
        return []
    try:
        with connect() as client:
            nodes = client.nodes()
    except (GavelApiError, ServiceUnreachable) as problem:
        return [{"about": "service", "verdict": "note", "text": f"its nodes are not known: {explain(problem)}"}]
    unusable = [node for node in nodes if node["problem"]]
    return [{"about": f"node {node['name']}", "verdict": "problem", "text": node["problem"]} for node in unusable]


def _table(results: Iterable[Mapping[str, Any]]) -> Rows:
    table = Rows("ABOUT", "VERDICT", "WHAT", long=("WHAT",))
    for each in results:
        table.add_row(each["about"], each["verdict"], show.harmless(each["text"]))
    return table
