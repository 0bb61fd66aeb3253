"""However many jobs have come and gone: files, rows and bytes stay as they are."""

import os
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from gavel.backends.control_groups import hierarchies, prefix_of_all
from gavel.client import Client
from gavel.store.schema import Base
from tests.e2e.processes import Member

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
JOBS = int(os.environ.get("GAVEL_GROWTH_JOBS", "2500"))  # twice
LIMIT_S = 1800.0
SETTINGS = {
    "GAVEL_ROUND_DURATION_S": "20",
    "GAVEL_MINIMUM_LEASE_FRACTION": "0.02",
    "GAVEL_POLICY": "fifo",
    "GAVEL_TICK_S": "0.05",
    "GAVEL_CLEAR_INTERVAL_S": "1",
    "GAVEL_KEEP_JOBS_S": "0",
    "GAVEL_KEEP_KEYS_S": "60",
    "GAVEL_KEEP_ROUNDS": "50",
}
DECISIONS = {"audit", "usage"}  # which stay for good


def run_and_purge(client: Client, member: Member, jobs: int) -> None:
    """Let so many jobs run to their end; returns once nothing of them is stored."""
    for start in range(0, jobs, 500):
        client.submit_array({"argv": ["true"], "total_steps": 1}, count=min(500, jobs - start))
    end_s = time.monotonic() + LIMIT_S
    while list(client.jobs(limit=1)) or left_behind(member.state_dir):
        assert time.monotonic() < end_s, member.output()
        time.sleep(0.5)


def left_behind(state_dir: Path) -> list[Path]:
    """What is there of jobs, control groups of their gangs included."""
    places = ("gangs", "work", "checkpoints", "outputs", "logs")
    start = prefix_of_all(str(state_dir.resolve() / "gangs"))
    groups = [path for each in hierarchies().values() for path in Path(each.parent).glob(f"{start}*")]
    here = [path for place in places for path in (state_dir / place).glob("*")]
    return groups + [path for path in here if not path.name.startswith(".")]


def contents(state_dir: Path) -> tuple[int, int, dict[str, int]]:
    """Files, bytes of the database's pages in use, and rows of tables."""
    files = sum(len(names) for _, _, names in os.walk(state_dir))
    engine = sa.create_engine(f"sqlite:///{state_dir / 'gavel.db'}")
    with engine.connect() as connection:
        tables = [table for table in Base.metadata.sorted_tables if table.name not in DECISIONS]
        count = sa.select(sa.func.count())
        rows = {table.name: connection.execute(count.select_from(table)).scalar_one() for table in tables}
        pages, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
    engine.dispose()
    return files, (pages - free) * size, rows


@pytest.mark.skipif(not IS_FULL, reason="thousands of processes: only with GAVEL_TEST_PROFILE=full")
def test_five_thousand_short_jobs_leave_what_half_as_many_left(tmp_path: Path) -> None:
    with Member(tmp_path / "state", SETTINGS) as member, member.client() as client:
        run_and_purge(client, member, JOBS)
        files, used_bytes, rows = contents(member.state_dir)
        run_and_purge(client, member, JOBS)
        more_files, more_bytes, more_rows = contents(member.state_dir)
    assert more_files <= files + 5, "rotated logs of the service, at most"
    assert more_bytes <= 1.1 * used_bytes + (1 << 20)
    growing = {name: (rows[name], more_rows[name]) for name in rows if more_rows[name] > rows[name] + 50}
    assert growing.keys() <= {"idempotency_keys"}, growing
