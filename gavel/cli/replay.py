"""The command that decides a stored round's allocation again, from what is kept with it, and compares."""

from typing import Annotated

import typer

from gavel.cli.connection import app, fail, settings

Url = Annotated[
    str | None, typer.Option("--database-url", help="Default: GAVEL_DATABASE_URL, else SQLite in the state folder.")
]
SAME = 1e-6  # time fractions closer than this are the same decision


@app.command()
def replay(round_index: Annotated[int, typer.Argument(metavar="ROUND", min=1)], url: Url = None) -> None:
    """Decide a stored round's allocation again from its stored problem; exit code 1 if it comes out otherwise.

    Reads the database; needs no running service. A round whose solver failed, or that used an older answer again, is
    named as such: there is nothing to decide.
    """
    import numpy as np

    from gavel.errors import GavelError
    from gavel.mechanism.caps import capped
    from gavel.policies.inline import InlineRunner
    from gavel.policies.registry import load
    from gavel.store.maintenance import stored_round

    known = settings(database_url=url)
    try:
        record = stored_round(known.url, round_index)
        stored = record.allocation
        if record.solver_outcome != "solved":
            fail(f"round {round_index} has no solve of its own: {record.solver_outcome}")
        policy = known.policy if known.policy.partition("?")[0] == stored.policy else stored.policy
        runner = InlineRunner(lambda name: load(name, known.policy_path))
        again = capped(runner.allocate(policy, record.problem, known.solve_time_limit_s), record.problem)
    except GavelError as error:
        fail(str(error))
    is_alike = again.combinations == stored.combinations and again.accelerator_types == stored.accelerator_types
    off = float(np.abs(again.time_fraction - stored.time_fraction).max(initial=0.0)) if is_alike else np.inf
    leases = len(record.plan.leases)
    what = f"round {round_index}, policy {policy}, {len(record.problem.job_ids)} jobs, {leases} leases"
    typer.echo(f"{what}: {'the same' if off <= SAME else 'another'} allocation (largest difference {off:.1e})")
    raise typer.Exit(int(off > SAME))
