"""What the history of a real run says: the same tasks, replayed in the simulator under one composition throughout.

A replay has the arrivals and lengths of the run, and starts that cost what the starts of the run did cost. The switches
of the autopilot are replayed, too: so it is compared with each composition in one simulator.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gavel.autopilot.composition import read
from gavel.autopilot.course import course_of_rows
from gavel.autopilot.goals import Goal, costs
from gavel.config import Settings
from gavel.demo.autopilot.runs import ROUND_S, Ran
from gavel.demo.autopilot.workload import KIND, STEPS_PER_S
from gavel.policies.inline import InlineRunner
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario
from gavel.simulator.report import JobResult, row_of
from gavel.types import Job
from workloads.traces.job import TraceJob

Switch = tuple[float, str]
"""Seconds since the first arrival, and the composition from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the goal's measure cost, whether on real processes, and the time of each set: (its arrival, its seconds)."""

    mean_s: float
    is_real: bool
    of_sets: tuple[tuple[float, float], ...]


def real_cost(goal: Goal, ran: Ran) -> Cost:
    """Return what the run cost."""
    return _cost(goal, [_row(place, job, ran.jobs[0]) for place, job in enumerate(ran.jobs)], is_real=True)


def replayed_cost(goal: Goal, ran: Ran, switches: Sequence[Switch]) -> Cost:
    """Return what its tasks would have cost with these compositions; the first one begins at the first arrival."""
    base = _scenario(ran)
    (_, first), *later = switches
    world = LeanWorld(trace(ran), replace(base, settings=_settings(first, base)), InlineRunner())

    def before_round(now_s: float) -> None:
        while later and later[0][0] <= now_s:
            world.follow(_settings(later.pop(0)[1], base))

    for _ in world.rounds(before_round):
        pass
    return _cost(goal, world.result().rows, is_real=False)


def switches_of(ran: Ran) -> list[Switch]:
    """Return what was in force in the run, and since when."""
    began_s = ran.jobs[0].submitted_at_s
    return [(0.0, ran.choice.policy), *((each.at_s - began_s, each.chosen) for each in ran.switches)]


def start_s(ran: Ran) -> float:
    """Return what a start cost in the run, a median: from the launch to the end of a task, less its length."""
    launched_at_s = ran.launched_at_s
    took_s = [(job.finished_at_s or 0.0) - launched_at_s[job.id] - _length_s(job) for job in ran.jobs]
    return max(0.0, statistics.median(took_s))


def trace(ran: Ran) -> Iterator[TraceJob]:
    """Yield the tasks of the run, as they arrived."""
    for job in ran.jobs:
        yield TraceJob(
            submitted_at_s=job.submitted_at_s - ran.jobs[0].submitted_at_s,
            spec=replace(job.spec, name=job.id, kind=KIND),
            id=job.id,
        )


def _scenario(ran: Ran) -> Scenario:
    settings = Settings(policy=ran.choice.policy, round_duration_s=ROUND_S, planning_lead_fraction=0.0)  # type: ignore[call-arg]
    return Scenario(
        cluster=ran.cluster,
        throughput={(KIND, 1, name): STEPS_PER_S for name in ran.cluster.accelerator_types},
        settings=settings,
        switch_cost_s={"": start_s(ran)},
    )


def _settings(text: str, base: Scenario) -> Settings:
    return read(text, base.settings).settings(base.settings)


def _length_s(job: Job) -> float:
    return (job.spec.total_steps or 0) / STEPS_PER_S


def _row(place: int, job: Job, first: Job) -> JobResult:
    return replace(
        row_of(job),
        id=str(place),
        submitted_at_s=job.submitted_at_s - first.submitted_at_s,
        finished_at_s=(job.finished_at_s or 0.0) - first.submitted_at_s,
        fastest_s=_length_s(job),
    )


def _cost(goal: Goal, rows: Sequence[JobResult], *, is_real: bool) -> Cost:
    course = goal.counted(course_of_rows(rows))
    ((measure, _),) = goal.weights
    times = zip(course.submitted_at_s.tolist(), course.elapsed_s(course.ended_at_s).tolist(), strict=True)
    return Cost(mean_s=costs(course)[measure], is_real=is_real, of_sets=tuple(sorted(times)))
