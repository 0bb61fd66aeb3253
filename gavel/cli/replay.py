"""The command that decides a stored round again, from what is kept with it, and compares."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.connection import app, refusals, settings

if TYPE_CHECKING:
    from gavel.simulator.round_again import Verdict

Url = Annotated[
    str | None, typer.Option("--database-url", help="Default: GAVEL_DATABASE_URL, else SQLite in the state folder.")
]


@app.command()
def replay(round_index: Annotated[int, typer.Argument(metavar="ROUND", min=1)], url: Url = None) -> None:
    """Decide a stored round again, its allocation and its leases; exit code 1 if anything comes out otherwise.

    Reads the database; needs no running service. What cannot be compared is said: a round whose solver failed or that
    used an older answer again has no allocation of its own, and leases need the ledger of the round before.
    """
    from gavel.simulator.round_again import decided_again
    from gavel.simulator.round_again import stored_round as taken
    from gavel.store.maintenance import stored_round

    known = settings(database_url=url)
    with refusals():
        found = decided_again(taken(partial(stored_round, known.url), round_index, known))
    _tell(found)
    raise typer.Exit(int(not found.is_same))


def _tell(found: "Verdict") -> None:
    what = f"round {found.round_index}, policy {found.policy}, {found.jobs} jobs, {found.leases} leases"
    if found.largest_difference is None:
        told = "no allocation of its own"
    elif found.largest_difference <= 1e-6:
        told = f"the same allocation (largest difference {found.largest_difference:.1e})"
    else:
        told = f"another allocation (largest difference {found.largest_difference:.1e})"
    differ = len(found.missing) + len(found.extra)
    typer.echo(f"{what}: {told}, {'the same leases' if not differ else f'{differ} leases differ'}")
    for side, leases in (("only stored", found.missing), ("only decided again", found.extra)):
        for lease in leases:
            typer.echo(f"  {side}: job {lease.job_id} on {', '.join(lease.worker_ids)} ({lease.accelerator_type})")
    if found.note:
        typer.echo(f"  {found.note}")
