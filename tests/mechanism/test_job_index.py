"""What ticks keep of the jobs is what a loop over all jobs finds; and a tick looks at the jobs that changed only."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.jobs import admission_holds
from gavel.mechanism.jobs.index import JobIndex, is_conditional
from gavel.mechanism.observing.served import Served
from gavel.mechanism.planning.problem import is_schedulable, schedulable
from gavel.types import Job, JobState, Tier, Usage
from tests.builders import a_job
from tests.conftest import IS_FULL

NOW_S = 100.0
TIERS = {"gold": Tier(name="gold"), "spent": Tier(name="spent", accelerator_hours_per_month=1.0)}
USED = {("spent", "1970-01"): Usage(tier="spent", month="1970-01", accelerator_hours=2.0, cost_usd=0.0)}
IDS = [f"j{index}" for index in range(8)]


@st.composite
def a_drawn_job(draw: st.DrawFn) -> Job:
    flags: dict[str, Any] = {name: draw(st.booleans()) for name in ("cancel_requested", "pause_requested")}
    return a_job(
        draw(st.sampled_from(IDS)),
        state=draw(st.sampled_from([JobState.QUEUED, JobState.LEASED])),
        submitted_at_s=draw(st.sampled_from([10.0, 20.0, NOW_S, 110.0])),
        retry_at_s=draw(st.sampled_from([0.0, 50.0, 150.0])),
        waits_for=draw(st.sampled_from([(), ("other",)])),
        no_progress=draw(st.sampled_from(["", "it never saves"])),
        spec={
            "priority": draw(st.integers(-1, 1)),
            "tier": draw(st.sampled_from(list(TIERS))),
            "scale_factor": draw(st.sampled_from([1, 2, 4])),
        },
        **flags,
    )


def by_id(jobs: list[Job]) -> dict[str, Job]:
    return {job.id: job for job in jobs}


@settings(max_examples=60 if IS_FULL else 20)
@given(
    steps=st.lists(st.one_of(a_drawn_job(), st.sampled_from(IDS), st.lists(a_drawn_job()).map(by_id)), max_size=12),
    usage=st.sampled_from([{}, USED]),
)
def test_the_index_is_what_a_loop_over_all_jobs_finds(steps: list[Any], usage: dict[Any, Usage]) -> None:
    index, jobs = JobIndex(), dict[str, Job]()
    for step in steps:
        match step:
            case Job():
                index.put(step)
                jobs[step.id] = step
            case str():
                index.remove(step)
                jobs.pop(step, None)
            case _:
                index.take(step)
                jobs = step
        assert index.jobs == jobs
        assert index.leased == {each.id: each for each in jobs.values() if each.state is JobState.LEASED}
        assert index.conditional == {each.id: each for each in jobs.values() if is_conditional(each)}
        held = admission_holds.held(jobs.values(), tiers=TIERS, usage=usage, now_s=NOW_S)
        assert admission_holds.held_of(index, tiers=TIERS, usage=usage, now_s=NOW_S) == held
        assert index.serving(held, NOW_S) == [job for job in schedulable(jobs.values(), NOW_S) if job.id not in held]
        served = Served(index, tiers=TIERS, usage=usage, largest=2, now_s=NOW_S)
        plain = [job.id for job in jobs.values() if is_schedulable(job, NOW_S) and job.id not in held]
        plain = [each for each in plain if jobs[each].submitted_at_s < NOW_S and jobs[each].spec.scale_factor <= 2]
        assert served.count == len(plain)
        assert [job.id for job in jobs.values() if served.includes(job)] == plain


class CountedIndex(JobIndex):
    """Counts the jobs that were looked at."""

    def put(self, job: Job) -> None:
        self.looked_at = getattr(self, "looked_at", 0) + 1
        super().put(job)


def test_of_many_jobs_only_those_that_changed_are_looked_at() -> None:
    jobs = by_id([a_job(f"j{index}", submitted_at_s=float(index)) for index in range(5000)])
    index = CountedIndex(jobs)
    index.looked_at = 0
    after = jobs | by_id([a_job(f"j{index}", steps_done=1, submitted_at_s=float(index)) for index in range(7)])
    del after["j100"]
    index.take(after)
    assert index.looked_at == 7
    index.take(after)
    assert index.looked_at == 7
    assert index.in_order() == schedulable(after.values(), 1e9)
