"""Histories of five clients of two services on one database, which are killed meanwhile, are linearizable."""

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.demo.service import ServiceProcess, wait_until
from gavel.types import Job
from tests.api.conftest import Service, serve
from tests.builders import a_cluster
from tests.e2e.processes import LEADS, LIMIT_S, STANDS_BY, Member
from tests.linearizability.clients import Recorder, Target, run_history
from tests.linearizability.models import violations
from tests.postgresql import running_server

HISTORIES = int(os.environ.get("GAVEL_HISTORIES", "60"))
FIRST_SEED = int(os.environ.get("GAVEL_HISTORIES_SEED", "1"))
CALLS = 40  # of each client
SETTINGS = {"GAVEL_ROUND_DURATION_S": "4", "GAVEL_LEADER_LEASE_S": "2", "GAVEL_REQUESTS_PER_USER_PER_S": "100000"}


class Pair:
    """Two services on one database. One at a time is killed; it comes back, on another port, while the other serves."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._folder, self._settings = folder, settings
        self.members = [self._started()]
        self.members[0].wait_until_it_says(LEADS)
        self.members.append(self._started())
        self.members[1].wait_until_it_says(STANDS_BY)
        self._coming = threading.Thread()
        self.kills, self.killed = 0, 1  # how many, and which the last time

    def urls(self) -> Sequence[str]:
        return [member.url for member in self.members]

    def kill(self, index: int) -> None:
        """kill -9 of one service; another is started in its place meanwhile."""
        self.wait()
        self.members[index].kill()
        self.kills += 1
        self.killed = index
        self._coming = threading.Thread(target=self._replace, args=(index,))
        self._coming.start()

    def survivor(self) -> Member:
        """The service that was not killed the last time."""
        return self.members[1 - self.killed]

    def wait(self) -> None:
        """Returns once both serve."""
        if self._coming.ident is not None:
            self._coming.join()

    def close(self) -> None:
        self.wait()
        for member in self.members:
            member.__exit__(None, None, None)
        ServiceProcess(self._folder, {}).stop()

    def _started(self) -> Member:
        return Member(self._folder, self._settings).__enter__()

    def _replace(self, index: int) -> None:
        self.members[index] = self._started()


@contextmanager
def pair_on(kind: str, folder: Path) -> Iterator[Pair]:
    """Two services on a database of the kind; nothing of them is left afterwards."""
    with ExitStack() as stack:
        url = {"GAVEL_DATABASE_URL": stack.enter_context(running_server()).new_database()} if kind != "sqlite" else {}
        pair = Pair(folder, SETTINGS | url)
        stack.callback(pair.close)
        yield pair


@pytest.mark.full
@pytest.mark.timeout(120 + 20 * HISTORIES)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_histories_under_kills_and_take_overs_are_linearizable(tmp_path: Path, kind: str) -> None:
    """Every second history loses a service in its middle, the one that leads or the other."""
    with pair_on(kind, tmp_path / "state") as pair:
        target = prepared(pair)
        for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
            recorder = one_history(pair, target, seed)
            assert violations(recorder.history) == [], (seed, recorder.history)
            recorded = sum(map(len, recorder.history.values()))
            assert recorded > CALLS, "of five times as many; about half of them while one service comes back"
        assert pair.kills == HISTORIES // 2


def one_history(pair: Pair, target: Target, seed: int) -> Recorder:
    chance = random.Random(seed)
    prefix = f"history-{seed}"
    with pair.survivor().client() as operator:
        operator.put_tier(prefix, weight=1.0)
    at_call = chance.randint(CALLS // 2, 4 * CALLS)

    def kill_one(recorder: Recorder) -> None:
        assert wait_until(lambda: recorder.calls >= at_call, LIMIT_S, 0.005)
        pair.kill(chance.randrange(2))

    when = kill_one if seed % 2 == 0 else lambda _: None
    return run_history(replace(target, prefix=prefix), calls=CALLS, seed=seed, when=when)


def prepared(pair: Pair) -> Target:
    with pair.members[0].client() as operator:
        assert wait_until(lambda: bool(operator.cluster()["workers"]), LIMIT_S)
        blocker = operator.submit(argv=["sleep", "1"], total_steps=1)["id"]
        operator.pause(blocker)
        node = operator.nodes()[0]["name"]
    token = (pair.members[0].state_dir / "operator.token").read_text().strip()
    return Target(urls=pair.urls, token=token, prefix="", blocker=blocker, node=node)


@contextmanager
def a_service(folder: Path) -> Iterator[Service]:
    """One service without a scheduler, whose store a test may break."""
    folder.mkdir()
    yield from serve(folder, cluster=a_cluster(fast=1), requests_per_user_per_s=1e6)


def history_on(service: Service, seed: int) -> Recorder:
    operator = service.operator()
    blocker = operator.post("/v1/jobs", json={"argv": ["true"], "total_steps": 1}).json()["id"]
    assert operator.put("/v1/tiers/broken", json={"weight": 1.0}).status_code == 201
    token = operator.headers["Authorization"].removeprefix("Bearer ")
    target = Target(urls=lambda: [service.url], token=token, prefix="broken", blocker=blocker, node="node-0")
    return run_history(target, calls=30, seed=seed, when=lambda _: None)


def stale_reads(service: Service) -> None:
    """One reading in three answers what the reading before did."""
    fresh, last, chance = service.store.job, dict[str, Job](), random.Random(1)

    def job(job_id: str) -> Job:
        before, now = last.get(job_id), fresh(job_id)
        last[job_id] = now
        return before if before is not None and chance.random() < 0.3 else now

    service.store.job = job  # type: ignore[method-assign]


def a_lost_write(service: Service) -> None:
    """Every third change of a job is acknowledged, and is not in the database."""
    edit, seen = service.store.edit_job, []

    def edit_job(job_id: str, change: Any, **given: Any) -> Job:
        seen.append(job_id)
        if len(seen) % 3:
            return edit(job_id, change, **given)
        job = service.store.job(job_id)
        return replace(job, spec=replace(job.spec, weight=change.weight))

    service.store.edit_job = edit_job  # type: ignore[method-assign]


def a_key_that_makes_two_jobs(service: Service) -> None:
    start = service.store.start_submit

    def start_submit(spec: Any, *, key: str | None, **given: Any) -> Any:
        return start(spec, key=None, **given)

    service.store.start_submit = start_submit  # type: ignore[method-assign]


@pytest.mark.small("None-kinds0", "a_lost_write-kinds2")
@pytest.mark.parametrize(
    ("breaks", "kinds"),
    [(None, set()), (stale_reads, {"job"}), (a_lost_write, {"job"}), (a_key_that_makes_two_jobs, {"job"})],
)
def test_a_store_that_lies_is_caught(tmp_path: Path, breaks: Callable[[Service], None] | None, kinds: set[str]) -> None:
    """The calls of one history need not meet the moment of a lie, so there are up to ten, each on a new service."""
    for seed in range(1, 11):
        with a_service(tmp_path / str(seed)) as service:
            if breaks is not None:
                breaks(service)
            caught = {kind for kind, _ in violations(history_on(service, seed).history)}
        if breaks is None or caught:
            break
    assert caught == kinds
