"""Commands that show what the scheduler does: allocations, throughputs, rounds, cluster, policies."""

from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect


@app.command()
def allocations(as_json: Json = False) -> None:
    """Show each job's target and received fractions of time on each accelerator type."""
    with connect() as client:
        if not as_json and not client.rounds(limit=1):
            typer.echo("no round has been planned yet: submit a job")
            return
        show.answer(client.allocations(), as_json, show.allocation)


@app.command()
def throughputs(as_json: Json = False) -> None:
    """Show what is believed of each job kind's speed, how well it is known, and whose statements were off."""
    with connect() as client:
        show.answer(client.estimator(), as_json, show.throughputs)


@app.command()
def rounds(
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show at most so many.")] = 10, as_json: Json = False
) -> None:
    """Show the newest rounds and who held which worker."""
    with connect() as client:
        show.answer(client.rounds(limit=limit), as_json, show.rounds)


@app.command()
def cluster(as_json: Json = False) -> None:
    """Show nodes and workers, and the jobs on them."""
    with connect() as client:
        show.answer(client.cluster(), as_json, show.cluster)


@app.command()
def policies(as_json: Json = False) -> None:
    """List policies for GAVEL_POLICY, and objectives for tiers."""
    with connect() as client:
        show.answer(client.policies(), as_json, show.policies)
