"""Commands that show what the scheduler does (allocations, throughputs, cluster ..), and `gavel policy list|set`."""

from typing import Annotated

import typer

from gavel.cli import completion, matrices, show
from gavel.cli.connection import Json, app, connect, fail, is_known, settings
from gavel.cli.resolving import OneJob

policy_commands = typer.Typer(help="List policies, or use another one.", no_args_is_help=True)
app.add_typer(policy_commands, name="policy")

Tier = Annotated[str | None, typer.Option(help="Of this tier only.")]


@app.command()
def allocations(
    group: Annotated[bool, typer.Option("--group", help="One line for all jobs of a tier and kind.")] = False,
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
        show.answer(client.allocations(group_by=group_by, tier=tier, kind=kind), as_json, matrices.allocation)


@app.command()
def throughputs(job: OneJob = None, as_json: Json = False) -> None:
    """Show the estimated speed of each job kind with its interval, and whose claims were wrong."""
    with connect() as client:
        show.answer(client.throughputs(job_id=job), as_json, matrices.throughputs)


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


@policy_commands.command("list")
def list_policies(as_json: Json = False) -> None:
    """List policies for the cluster, the current one marked, and objectives for tiers. Needs no service."""
    if is_known():
        with connect() as client:
            show.answer(client.policies(), as_json, show.policies)
        return
    from api.routes.policies import policy_list

    show.answer(policy_list(settings()).model_dump(mode="json"), as_json, show.policies)


@policy_commands.command("set")
def set_policy(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[POLICY]", help="With ?parameters, if it has any.", autocompletion=completion.policies),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Use the policy of the settings again.")] = False,
    as_json: Json = False,
) -> None:
    """Use another policy from the next round on, with other parts if you name some. The choice survives restarts.

    gavel policy set 'max_min_fairness?water_filling=true'

    gavel policy set fifo/backfill=false/round_duration_s=20
    """
    if (name is None) != reset:
        fail("name a policy of `gavel policy list`, or give --reset")
    with connect() as client:
        show.answer(client.set_policy(name), as_json, show.operation)


@app.command()
def health(as_json: Json = False) -> None:
    """Show whether the service is ready; exit code 2 with the reason if it is not."""
    with connect() as client:
        state = {"status": client.health() if client.is_alive() else "dead"}
        show.answer(state, as_json, lambda body: body["status"])


@app.command()
def metrics() -> None:
    """Print the metrics that Prometheus reads."""
    with connect() as client:
        typer.echo(client.metrics(), nl=False)
