"""A real service in short rounds: thousands of short jobs come and go, and what it holds stays as it is."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from gavel.client import Client
from gavel.demo.service import wait_until
from tests.chaos.victims import SOLVER
from tests.e2e.processes import Member
from tests.soak.trend import growing
from tests.soak.virtual_day import database_figures

ROUNDS = int(os.environ.get("GAVEL_SOAK_ROUNDS", "90"))
ROUND_S = float(os.environ.get("GAVEL_SOAK_ROUND_S", "2"))
SAMPLES = 30
IN_QUEUE = 12  # jobs that wait or run, at the most
LIMIT_S = 120.0 + 10 * ROUNDS * ROUND_S
SETTINGS = {
    "GAVEL_ROUND_DURATION_S": str(ROUND_S),
    "GAVEL_TICK_S": "0.1",
    "GAVEL_POLICY": "fifo",
    "GAVEL_CLEAR_INTERVAL_S": "1",
    "GAVEL_KEEP_JOBS_S": "0",
    "GAVEL_KEEP_KEYS_S": "60",
    "GAVEL_KEEP_ROUNDS": "10",  # fewer than the warm-up has
}
ALLOWED = {"memory_bytes": 0.05, "descriptors": 0.0, "files": 0.1, "disk_bytes": 0.25, "database_bytes": 0.25}
NOT_CLEARED_YET = {"rows of idempotency_keys"}  # they stay for a minute at the least


@pytest.mark.full
@pytest.mark.timeout(300 + int(2 * LIMIT_S))
def test_rounds_and_jobs_without_end_leave_everything_as_it_is(tmp_path: Path) -> None:
    with Member(tmp_path / "state", SETTINGS) as member, member.client() as client:
        samples = list(soak(member, client))
    ran = samples[-1]["jobs_submitted"]
    assert ran > 3 * IN_QUEUE, "jobs came and went"
    rows = {name: 0.25 for name in samples[0] if name.startswith("rows of ") and name not in NOT_CLEARED_YET}
    assert growing(samples, ALLOWED | rows) == {}, f"after {ran:.0f} jobs"


def soak(member: Member, client: Client) -> Iterator[dict[str, float]]:
    """Yield what there is after each of SAMPLES equal numbers of rounds; jobs come as fast as they end."""
    submitted = 0
    begun = newest_round(client)
    for number in range(1, SAMPLES + 1):
        until = begun + number * ROUNDS // SAMPLES
        while newest_round(client) < until:
            before = newest_round(client)
            if missing := IN_QUEUE - unfinished(client):
                client.submit_array({"argv": ["true"], "total_steps": 1}, count=missing)
                submitted += missing
            assert wait_until(partial(has_moved, client, before), LIMIT_S, ROUND_S), member.output()
        yield sample(member) | {"jobs_submitted": float(submitted)}


def unfinished(client: Client) -> int:
    return sum(job["state"] not in ("COMPLETED", "FAILED", "CANCELLED") for job in client.jobs())


def has_moved(client: Client, before: int) -> bool:
    """Whether there is a later round, or room for jobs: without jobs no round comes."""
    return newest_round(client) > before or unfinished(client) < IN_QUEUE


def newest_round(client: Client) -> int:
    return max((each["round_index"] for each in client.rounds(limit=1)), default=0)


def is_solver(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return SOLVER in process.cmdline()
    return False


def sample(member: Member) -> dict[str, float]:
    """Memory and descriptors of the service, the scheduler and the solver; files and bytes of the state folder."""
    scheduler = member.scheduler()
    own = [psutil.Process(member.process.pid), scheduler, *filter(is_solver, scheduler.children())]
    files = [os.path.join(folder, name) for folder, _, names in os.walk(member.state_dir) for name in names]
    sizes = 0
    for path in files:
        with suppress(FileNotFoundError):  # gangs end, and their folders go, meanwhile
            sizes += os.lstat(path).st_size
    figures = {
        "memory_bytes": float(sum(each.memory_info().rss for each in own)),
        "descriptors": float(sum(each.num_fds() for each in own)),
        "files": float(len(files)),
        "disk_bytes": float(sizes),
    }
    return figures | database_figures(f"sqlite:///{member.state_dir / 'gavel.db'}")
