"""The command `gavel job set`: what may be changed of a job that has not ended."""

from typing import Annotated, Any

import typer

from gavel.cli import show
from gavel.cli.connection import Json, connect, fail
from gavel.cli.jobs import job_commands
from gavel.cli.option_texts import pairs
from gavel.cli.resolving import JobId
from gavel.cli.submit_options import Priority, Repeated, demand_of, rate_of

OF_SERVICE = "What a service has"


@job_commands.command("set")
def edit(  # noqa: PLR0913  one option per field that may be changed
    job_id: JobId,
    *,
    program: Annotated[
        Repeated,
        typer.Argument(metavar="[-- PROGRAM [ARGUMENT..]]", help="Of a service: its new program."),
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Relative to your other jobs in the tier.")] = None,
    priority: Priority = None,
    label: Annotated[Repeated, typer.Option(metavar="KEY=VALUE", help="Replaces all labels; repeatable.")] = None,
    replicas: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="How many replicas.", rich_help_panel=OF_SERVICE)
    ] = None,
    replicas_min: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The fewest replicas.", rich_help_panel=OF_SERVICE)
    ] = None,
    replicas_max: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The most replicas.", rich_help_panel=OF_SERVICE)
    ] = None,
    demand: Annotated[
        str | None,
        typer.Option(metavar="N|measured", help="Requests/s that are asked for.", rich_help_panel=OF_SERVICE),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="N|JSON", help="Requests/s of a replica, or by type: '{\"V100\": 40}'.", rich_help_panel=OF_SERVICE
        ),
    ] = None,
    headroom: Annotated[
        float | None, typer.Option(min=0, metavar="PART", help="0.2: a fifth more.", rich_help_panel=OF_SERVICE)
    ] = None,
    as_json: Json = False,
) -> None:
    """Change an unfinished job, from the next round on.

    gavel job set ID --priority 2

    gavel job set ID --rate 40 --replicas-max 8

    gavel job set ID -- python serve.py --model v2
    """
    changes: dict[str, Any] = {
        "weight": weight,
        "priority": priority,
        "labels": None if label is None else pairs("--label", label),
        "replicas": replicas,
        "replicas_min": replicas_min,
        "replicas_max": replicas_max,
        "demand": demand_of(demand),
        "rate": rate_of(rate),
        "headroom": headroom,
        "new_version": {"argv": program} if program else None,
    }
    if all(each is None for each in changes.values()):
        fail("say what to change: --weight, --priority, --label, or of a service --replicas, --demand, .., a PROGRAM")
    with connect() as client:
        show.answer(client.edit(job_id, **changes), as_json, show.job)
