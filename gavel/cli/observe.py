"""Commands that show what the scheduler does: allocations, throughputs, rounds, cluster, policies; switching policy."""

from typing import Annotated

import typer

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect, fail, is_known, settings

Tier = Annotated[str | None, typer.Option(help="Of this tier only.")]


@app.command()
def allocations(
    group: Annotated[bool, typer.Option("--group", help="One line for the jobs of a tier and kind.")] = False,
    tier: Tier = None,
    kind: Annotated[str | None, typer.Option(help="Of this job kind only.")] = None,
    as_json: Json = False,
) -> None:
    """Show each job's target and received fractions of time on each accelerator type."""
    with connect() as client:
        if not as_json and not client.rounds(limit=1):
            typer.echo("no round has been planned yet: submit a job")
            return
        group_by = "tier_and_kind" if group else "none"
        show.answer(client.allocations(group_by=group_by, tier=tier, kind=kind), as_json, show.allocation)


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


@app.command("round")
def show_round(round_index: Annotated[int, typer.Argument(metavar="ROUND", min=1)], as_json: Json = False) -> None:
    """Show one round and who held which worker."""
    with connect() as client:
        show.answer(client.round(round_index), as_json, lambda found: show.rounds([found]))


@app.command()
def cluster(as_json: Json = False) -> None:
    """Show nodes and workers, and the jobs on them."""
    with connect() as client:
        show.answer(client.cluster(), as_json, show.cluster)


@app.command()
def catalogue(as_json: Json = False) -> None:
    """List the job kinds that come with Gavel: submit one by its name alone."""
    with connect() as client:
        show.answer(client.catalogue(), as_json, show.catalogue)


@app.command()
def policies(as_json: Json = False) -> None:
    """List policies for the cluster, the current one marked, and objectives for tiers; needs no service."""
    if is_known():
        with connect() as client:
            show.answer(client.policies(), as_json, show.policies)
        return
    from api.routes.scheduling import policy_list

    show.answer(policy_list(settings()).model_dump(mode="json"), as_json, show.policies)


@app.command("policy")
def set_policy(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[POLICY]", help="With ?parameters, if it has any.", autocompletion=completion.policies),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Go back to that of the settings.")] = False,
    as_json: Json = False,
) -> None:
    """Decide by another policy from the next round on; it outlives restarts.

    gavel policy 'max_min_fairness?water_filling=true'
    """
    if (name is None) != reset:
        fail("name a policy of `gavel policies`, or give --reset")
    with connect() as client:
        show.answer(client.set_policy(name), as_json, show.operation)


@app.command()
def health(as_json: Json = False) -> None:
    """Say whether the service is ready; exit code 2 with the reason if it is not."""
    with connect() as client:
        state = {"status": client.health() if client.is_alive() else "dead"}
        show.answer(state, as_json, lambda found: found["status"])


@app.command()
def metrics() -> None:
    """Print what Prometheus reads."""
    with connect() as client:
        typer.echo(client.metrics(), nl=False)
