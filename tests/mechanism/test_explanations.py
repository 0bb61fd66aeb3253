"""What ticks explain of the jobs that may have changed is what explaining all jobs gives."""

from dataclasses import replace
from itertools import count
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gavel.mechanism.explaining import explanations, waiting
from gavel.mechanism.explaining.explanations import Explanations
from gavel.mechanism.explaining.waiting import explain_waiting
from gavel.mechanism.jobs.index import JobIndex
from gavel.policies.inline import InlineRunner
from gavel.types import Job, JobId, JobState, Lease, Reason, RoundPlan, RoundRecord
from tests.builders import a_job, a_problem
from tests.conftest import IS_FULL

HELD = Reason.PAUSED, "It is paused."
TIERS = ["gold", "silver"]


def a_lease(job: Job, worker: str) -> Lease:
    return Lease(
        job_id=job.id,
        generation=job.generation + 1,
        combination=(job.id,),
        accelerator_type="t0",
        worker_ids=(worker,),
        round_index=1,
        expires_at_s=100.0,
    )


class Ticks(RuleBasedStateMachine):
    """Jobs come, change and go from tick to tick, and rounds follow each other; two messages for each tier."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(module, "MESSAGES_PER_TIER", 2) for module in (waiting, explanations)]
        for each in self.patches:
            each.start()
        self.index, self.explanations = JobIndex(), Explanations()
        self.held: set[JobId] = set()
        self.record: RoundRecord | None = None
        self.numbers = count(1)

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    def put(self, job: Job) -> None:
        self.index.put(job)

    @rule(tier=st.sampled_from(TIERS), size=st.sampled_from([1, 2]))
    def come(self, tier: str, size: int) -> None:
        """Of a job that comes no round before has heard."""
        self.put(a_job(f"j{next(self.numbers):02}", spec={"tier": tier, "scale_factor": size}))

    @precondition(lambda self: self.index.jobs)
    @rule(pick=st.integers(0, 99), state=st.sampled_from([JobState.QUEUED, JobState.LEASED]))
    def start_or_stop(self, pick: int, state: JobState) -> None:
        job = self.picked(pick)
        is_start = state is JobState.LEASED and job.state is JobState.QUEUED
        message = "It was preempted."
        self.put(replace(job, state=state, generation=job.generation + is_start, reason=Reason.LOST, message=message))

    @precondition(lambda self: self.index.jobs)
    @rule(pick=st.integers(0, 99))
    def end(self, pick: int) -> None:
        self.index.remove(self.picked(pick).id)

    @precondition(lambda self: self.index.jobs)
    @rule(pick=st.integers(0, 99))
    def hold_or_release(self, pick: int) -> None:
        self.held ^= {self.picked(pick).id}

    @precondition(lambda self: self.index.jobs)
    @rule(lags=st.lists(st.sampled_from([0.0, 0.5, 1.5]), max_size=9), served=st.sets(st.integers(0, 9)))
    def decide(self, lags: list[float], served: set[int]) -> None:
        """A round; it leaves out the last job, of which it may have a lag."""
        ids = tuple(sorted(self.index.jobs))[:-1] or tuple(self.index.jobs)
        problem = replace(a_problem([[10.0, 5.0]] * len(ids), [2, 2]), job_ids=ids)
        cells = {(job_id, "t0"): lag for job_id, lag in zip(sorted(self.index.jobs), lags, strict=False)}
        leases = [a_lease(self.index.jobs[ids[row]], f"t0-{row}") for row in served if row < len(ids)]
        plan = RoundPlan(
            round_index=next(self.numbers),
            parent_round_index=0,
            starts_at_s=0.0,
            duration_s=100.0,
            leases=tuple(leases),
            policy="fifo",
            allocation_digest="",
        )
        allocation = InlineRunner().allocate("fifo", problem, 10.0)
        self.record = RoundRecord(plan=plan, problem=problem, allocation=allocation, lag_rounds=cells)

    @precondition(lambda self: self.record is not None and self.index.jobs)
    @rule(pick=st.integers(0, 99), is_given=st.booleans())
    def amend(self, pick: int, is_given: bool) -> None:
        """The plan of the same round gives a job a lease, or takes it."""
        assert self.record is not None
        job = self.picked(pick)
        leases = [lease for lease in self.record.plan.leases if lease.job_id != job.id]
        leases += [a_lease(job, "t1-0")] * is_given
        self.record = replace(self.record, plan=replace(self.record.plan, leases=tuple(leases)))

    def picked(self, pick: int) -> Job:
        jobs = sorted(self.index.jobs)
        return self.index.jobs[jobs[pick % len(jobs)]]

    @invariant()
    def explains_as_all_jobs_would(self) -> None:
        """Each tick explains, and what it leaves out is explained already."""
        if self.record is None:
            return
        held = {job_id: HELD for job_id in self.held if job_id in self.index.jobs}
        whole = {each[0]: each[1:] for each in explain_waiting(self.index.jobs, self.record)} | held
        seen = {each[0]: each[1:] for each in self.explanations.explain(self.index, self.record, held)} | held
        for job_id, (reason, message) in seen.items():
            assert whole[job_id] == (reason, message)
            job = self.index.jobs[job_id]
            if job.state is JobState.QUEUED and (job.reason, job.message) != (reason, message):
                self.put(replace(job, reason=reason, message=message))
        for job_id, expected in whole.items():
            job = self.index.jobs[job_id]
            assert job.state is not JobState.QUEUED or (job.reason, job.message) == expected


TestTicks = Ticks.TestCase
TestTicks.settings = settings(max_examples=400 if IS_FULL else 40, stateful_step_count=30)


def test_a_tick_in_which_little_happened_looks_at_the_first_of_each_tier_and_at_what_changed() -> None:
    index, ticks = JobIndex({f"j{number}": a_job(f"j{number}") for number in range(300)}), Explanations()
    ids = tuple(index.jobs)
    problem = replace(a_problem([[10.0]] * 300, [2]), job_ids=ids)
    plan = RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=0.0,
        duration_s=100.0,
        leases=(),
        policy="fifo",
        allocation_digest="",
    )
    record = RoundRecord(plan=plan, problem=problem, allocation=InlineRunner().allocate("fifo", problem, 10.0))
    assert len(list(ticks.explain(index, record, {}))) == 300
    index.put(replace(index.jobs["j250"], reason=Reason.LOST))
    assert [each[0] for each in ticks.explain(index, record, {})] == [*ids[: waiting.MESSAGES_PER_TIER], "j250"]
