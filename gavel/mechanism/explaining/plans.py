"""Which execution plan a job has, and why: how fast it is under each of them, on each accelerator type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.explaining.expected_end import Knowledge
from gavel.mechanism.jobs.infeasibility import marks_of, ruled_out
from gavel.mechanism.jobs.sizes import variants_of
from gavel.mechanism.planning.configurations import KNOWN_ERROR
from gavel.mechanism.planning.problem import as_known
from gavel.types import AcceleratorType, Job, JobState, plain_type

NOT_MEASURED, NOT_HERE, FAILED = "not measured", "not here", "failed here"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpeed:
    """How fast a job is under a plan on a type, at its present size; None with a `note` where that is not known.

    The `note` is `not measured`, `not here` (the plan does not hold on the type), or `failed here`.
    """

    plan: str
    accelerator_type: AcceleratorType
    steps_per_s: float | None
    note: str = ""


def plan_speeds(job: Job, knowledge: Knowledge) -> list[PlanSpeed]:
    """Return the speeds of an unfinished job under the plans that hold at its size, by plan and type."""
    if not job.spec.plans or job.state.is_terminal:
        return []
    feasibility = Feasibility(knowledge.state.cluster)
    variants = [each for each in variants_of(job) if each.spec.scale_factor == job.spec.scale_factor]
    return [speed for each in variants for speed in _speeds(each, feasibility, knowledge)]


def _speeds(variant: Job, feasibility: Feasibility, knowledge: Knowledge) -> list[PlanSpeed]:
    state, types = knowledge.state, feasibility.types
    failed = {mark.accelerator_type for mark in marks_of(variant, state.infeasible)}
    (seen,) = ruled_out([variant], state.infeasible)
    possible = feasibility.types_of(seen.spec)
    spec = as_known(variant, knowledge.estimator).spec
    speeds = []
    for name, estimate in zip(types, knowledge.estimator.estimate(spec, types), strict=True):
        is_known = name in possible and estimate.relative_error < KNOWN_ERROR
        note = FAILED if plain_type(name) in failed else NOT_HERE if name not in possible else NOT_MEASURED
        speeds.append(
            PlanSpeed(
                plan=variant.spec.plan,
                accelerator_type=name,
                steps_per_s=estimate.steps_per_s if is_known else None,
                note="" if is_known else note,
            )
        )
    return speeds


def plan_sentence(job: Job, speeds: Sequence[PlanSpeed], on: AcceleratorType | None) -> str:
    """Return why the job has its plan, in a sentence; "" without plans. `on`: the type that it runs on, None: none."""
    if not speeds:
        return ""
    if job.state is not JobState.LEASED or on is None:
        names = ", ".join(dict.fromkeys(each.plan for each in speeds))
        return f"It has the plans {names}; the round chooses one for the type where it starts."
    there = {each.plan: each for each in speeds if each.accelerator_type == on}
    own = there.get(job.spec.plan)
    others = ", ".join(f"{each.plan} {_worded(each)}" for each in there.values() if each is not own)
    of_others = f" The others there: {others}." if others else ""
    speed = f", {_worded(own)}" if own else ""
    return f"It runs under plan {job.spec.plan} on {on}{speed}: {_reason(own, there)}.{of_others}"


def _reason(own: PlanSpeed | None, there: Mapping[str, PlanSpeed]) -> str:
    if own is None or own.steps_per_s is None:
        return "it is tried, and kept if it is faster"
    fastest = max(each.steps_per_s or 0.0 for each in there.values())
    if own.steps_per_s >= fastest:
        return "no plan is known to be faster there"
    return "a faster one would not pay for a restart yet"


def _worded(speed: PlanSpeed) -> str:
    return speed.note if speed.steps_per_s is None else f"{speed.steps_per_s:.3g} steps/s"
