"""The local backend's guarantees hold in any order of instructions, failures and restarts."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gavel.backends.harness import Behaviour, gang, is_in, stop
from gavel.ports import ExtendLease, ForgetGang
from gavel.types import GangState, JobId
from tests.backends.clusters import LocalHarness

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
JOBS = ("j1", "j2", "j3")
PLACES = (("a-0",), ("a-1",), ("a-0", "a-1"), ("a-1", "b-0"))
ORDER = (GangState.WAITING, GangState.RUNNING, GangState.ENDED)


class LocalStates(RuleBasedStateMachine):
    """Safety at every step: one gang a worker, whole gangs, generations that only grow, states that only advance."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.harness = LocalHarness(self.folder)
        self.generations = dict.fromkeys(JOBS, 0)
        self.fences = dict.fromkeys(JOBS, 0)
        self.furthest: dict[tuple[JobId, int], GangState] = {}

    @rule(job_id=st.sampled_from(JOBS), workers=st.sampled_from(PLACES), finishes=st.booleans())
    def launch(self, job_id: JobId, workers: tuple[str, ...], finishes: bool) -> None:
        generation = self.generations[job_id] = self.generations[job_id] + 1
        behaviour = Behaviour.FINISHES if finishes else Behaviour.TRAINS
        self.harness.backend.execute(gang(self.harness, job_id, *workers, generation=generation, behaviour=behaviour))
        self.fences[job_id] = generation + 1

    @rule(job_id=st.sampled_from(JOBS), back=st.integers(0, 2))
    def launch_late_or_twice(self, job_id: JobId, back: int) -> None:
        generation = max(1, self.generations[job_id] - back)
        before = {(each.job_id, each.generation) for each in self.harness.backend.observe().gangs}
        self.harness.backend.execute(gang(self.harness, job_id, "b-0", generation=generation))
        after = {(each.job_id, each.generation) for each in self.harness.backend.observe().gangs}
        if generation < self.fences[job_id]:
            assert after == before
        self.generations[job_id] = max(generation, self.generations[job_id])
        self.fences[job_id] = max(generation + 1, self.fences[job_id])

    @rule(job_id=st.sampled_from(JOBS), ahead=st.integers(-1, 1))
    def stop(self, job_id: JobId, ahead: int) -> None:
        generation = max(1, self.generations[job_id] + ahead)
        self.harness.backend.execute(stop(job_id, generation=generation))
        self.generations[job_id] = max(generation, self.generations[job_id])
        self.fences[job_id] = max(generation + 1, self.fences[job_id])

    @rule(job_id=st.sampled_from(JOBS))
    def extend(self, job_id: JobId) -> None:
        expires_at_s = self.harness.now_s() + 90
        self.harness.backend.execute(
            [ExtendLease(job_id=job_id, generation=self.generations[job_id], expires_at_s=expires_at_s)]
        )

    @rule()
    def forget_what_ended(self) -> None:
        before = self.harness.backend.observe().gangs
        self.harness.backend.execute([ForgetGang(job_id=each.job_id, generation=each.generation) for each in before])
        after = {(each.job_id, each.generation) for each in self.harness.backend.observe().gangs}
        assert not after & {(each.job_id, each.generation) for each in before if each.state is GangState.ENDED}

    @rule()
    def restart(self) -> None:
        before = {(each.job_id, each.generation) for each in self.harness.backend.observe().gangs}
        self.harness.crash()
        self.harness.recover()
        assert {(each.job_id, each.generation) for each in self.harness.backend.observe().gangs} == before

    @precondition(lambda self: any(self.generations.values()))
    @rule(job_id=st.sampled_from(JOBS))
    def stop_and_wait(self, job_id: JobId) -> None:
        """Liveness: what is stopped ends, whatever came before."""
        generation = self.generations[job_id]
        before = {(each.job_id, each.generation) for each in self.harness.backend.observe().gangs}
        self.harness.backend.execute(stop(job_id, generation=generation))
        self.fences[job_id] = max(generation + 1, self.fences[job_id])
        if (job_id, generation) in before:
            self.harness.wait_until(is_in(GangState.ENDED, job_id, generation=generation))

    @invariant()
    def promises_hold(self) -> None:
        if not hasattr(self, "harness"):
            return
        seen = self.harness.backend.observe()
        held = [worker for each in seen.gangs if each.state is GangState.RUNNING for worker in each.worker_ids]
        assert len(held) == len(set(held)), "a worker holds one gang"
        for each in seen.gangs:
            key = (each.job_id, each.generation)
            assert each.generation < self.fences[each.job_id]
            before = self.furthest.get(key, GangState.WAITING)
            assert ORDER.index(each.state) >= ORDER.index(before), "states only advance"
            assert (each.exit is not None) == (each.state is GangState.ENDED)
            assert bool(each.waiting_for) == (each.state is GangState.WAITING)
            self.furthest[key] = each.state

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.close()
            shutil.rmtree(self.folder)


def test_promises_hold_in_any_order(tmp_path: Path) -> None:
    tempfile.tempdir = str(tmp_path)
    try:
        machine = LocalStates.TestCase
        machine.settings = settings(max_examples=200 if IS_FULL else 4, stateful_step_count=20)
        machine().runTest()
    finally:
        tempfile.tempdir = None
