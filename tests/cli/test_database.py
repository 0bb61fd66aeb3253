"""Commands that read the database without a service: backup, check, and a stored round that is decided again."""

from dataclasses import replace
from pathlib import Path

from gavel.policies.inline import InlineRunner
from gavel.ports import Changes
from gavel.store.sql import SqlStore
from tests.mechanism.world import World
from tests.test_cli import Shell, bare

__all__ = ["bare"]


def test_the_database_is_backed_up_and_checked_without_a_service(bare: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gavel.db"
    assert "from revision none to" in bare.ok("db", "upgrade", "--database-url", url)
    assert "0 jobs, 0 rounds, 0 faults" in bare.ok("db", "check", "--database-url", url)
    assert "copy.db holds 0 jobs" in bare.ok("db", "backup", "copy.db", "--database-url", url)
    assert bare.run("db", "backup", "copy.db", "--database-url", url).returncode == 2
    assert bare.run("db", "check").returncode == 2


def test_a_stored_round_is_decided_again(bare: Shell, tmp_path: Path) -> None:
    """1. A round as the driver decides it. 2. The same allocation again. 3. One that was tampered with is found out."""
    world = World(runner=InlineRunner())
    ids = [world.submit(10_000) for _ in range(5)]
    world.run(lambda: world.store.round().solver_outcome == "solved")
    record = world.store.round()
    other = replace(record.allocation, time_fraction=record.allocation.time_fraction * 0.5)
    url = f"sqlite:///{tmp_path}/rounds.db"
    store = SqlStore(url)
    bare_record = replace(record, inputs=None)  # its leases cannot be compared, as of rounds of older releases
    for index, kept in enumerate(
        (record, replace(bare_record, allocation=other), replace(bare_record, solver_outcome="reused"))
    ):
        plan = replace(kept.plan, round_index=index + 1, parent_round_index=index)
        store.commit(index, Changes(round=replace(kept, plan=plan)))
    store.close()
    assert (
        f"{len(ids)} jobs" in (output := bare.ok("round", "verify", "1", "--database-url", url))
        and "the same" in output
    )
    changed = bare.run("round", "verify", "2", "--database-url", url)
    assert changed.returncode == 1 and "another allocation" in changed.stdout
    assert "no allocation of its own" in bare.ok("round", "verify", "3", "--database-url", url)
    refused = bare.run("round", "verify", "4", "--database-url", url)
    assert refused.returncode == 2 and "no round 4" in refused.stderr
