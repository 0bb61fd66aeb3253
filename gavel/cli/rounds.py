"""Commands about rounds: `gavel round list|show|verify`."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect, refusals, settings

if TYPE_CHECKING:
    from gavel.simulator.round_again import Verdict

round_commands = typer.Typer(help="List rounds, show one, or decide one again and compare.", no_args_is_help=True)
app.add_typer(round_commands, name="round")

Round = Annotated[int, typer.Argument(metavar="ROUND", min=1)]
Url = Annotated[
    str | None, typer.Option("--database-url", help="Default: GAVEL_DATABASE_URL, else SQLite in the state folder.")
]


@round_commands.command("list")
def list_rounds(
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show at most so many.")] = 10, as_json: Json = False
) -> None:
    """Show the newest rounds and which job held which worker."""
    with connect() as client:
        show.answer(client.rounds(limit=limit), as_json, show.rounds)


@round_commands.command("show")
def show_round(round_index: Round, as_json: Json = False) -> None:
    """Show one round and which job held which worker."""
    with connect() as client:
        show.answer(client.round(round_index), as_json, lambda record: show.rounds([record]))


@round_commands.command()
def verify(round_index: Round, url: Url = None) -> None:
    """Decide a stored round again, its allocation and its leases; exit code 1 if anything is different.

    Reads the database and needs no running service. It prints what cannot be compared: a round whose solver failed, or
    that used an older allocation again, has no allocation of its own; leases need the ledger of the round before.
    """
    from gavel.simulator.round_again import decided_again
    from gavel.simulator.round_again import stored_round as taken
    from gavel.store.maintenance import stored_round

    service = settings(database_url=url)
    with refusals(), show.working():
        verdict = decided_again(taken(partial(stored_round, service.url), round_index, service))
    _tell(verdict)
    raise typer.Exit(int(not verdict.is_same))


def _tell(verdict: "Verdict") -> None:
    what = f"round {verdict.round_index}, policy {verdict.policy}, {verdict.jobs} jobs, {verdict.leases} leases"
    if verdict.largest_difference is None:
        outcome = "no allocation of its own"
    elif verdict.largest_difference <= 1e-6:
        outcome = f"the same allocation (largest difference {verdict.largest_difference:.1e})"
    else:
        outcome = f"another allocation (largest difference {verdict.largest_difference:.1e})"
    differ = len(verdict.missing) + len(verdict.extra)
    typer.echo(f"{what}: {outcome}, {'the same leases' if not differ else f'{differ} leases differ'}")
    for side, leases in (("only stored", verdict.missing), ("only decided again", verdict.extra)):
        for lease in leases:
            typer.echo(f"  {side}: job {lease.job_id} on {', '.join(lease.worker_ids)} ({lease.accelerator_type})")
    if verdict.note:
        typer.echo(f"  {verdict.note}")
