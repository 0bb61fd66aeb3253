"""What an operator wants of the scheduler: measures with weights, and limits. What each costs a set of jobs.

`mean_jct`, or `mean_jct=2,money=1,longest_wait_s<=86400,per=user,tier=gold`. Each measure grows with time and can be
cut at any instant, so that what a stretch of time has cost is computed exactly (docs/autopilot.md has the formulas).
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gavel.autopilot.course import Course
from gavel.errors import InvalidRequest, did_you_mean
from gavel.types import FloatArray

TAIL = 0.01  # the part of the jobs whose slowdowns are the tail
FIELD = "goal"
PER_USER = "per=user"
OF_TIER = "tier="
LONGEST_WAIT, LEAST_SHARE = "longest_wait_s", "least_share"
LIMITS = {LONGEST_WAIT: "<=", LEAST_SHARE: ">="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is wanted. `weights`: (measure, weight > 0), sorted. Limits: None where there is none.

    `longest_wait_s`: from submission to the first start. `least_share`: of a job, the time that it would have taken on
    an equal share of the cluster over the time that it took, 1 / rho. `per_user`: the jobs of a user count as one.
    `tier`: only its jobs count, but for the limits; "": all do.
    """

    weights: tuple[tuple[str, float], ...]
    longest_wait_s: float | None = None
    least_share: float | None = None
    per_user: bool = False
    tier: str = ""

    @property
    def text(self) -> str:
        """Return the one string that names it, which `read` reads."""
        parts = [name if weight == 1 else f"{name}={weight:.17g}" for name, weight in self.weights]
        limits = ((name, sign, getattr(self, name)) for name, sign in LIMITS.items())
        parts += [f"{name}{sign}{value:.17g}" for name, sign, value in limits if value is not None]
        parts += [PER_USER] if self.per_user else []
        return ",".join([*parts, OF_TIER + self.tier] if self.tier else parts)

    def counted(self, course: Course) -> Course:
        """Return the course of what counts as a job for this goal."""
        course = course.of_tier(self.tier) if self.tier else course
        return course.by_user() if self.per_user else course

    @property
    def has_limits(self) -> bool:
        """Return True if some courses are not admitted."""
        return self.longest_wait_s is not None or self.least_share is not None

    def cost(self, costs: Mapping[str, float], scale: Mapping[str, float]) -> float:
        """Return the weighted sum of the measures, each over its scale; a measure whose scale is 0 counts nothing."""
        return math.fsum(weight * costs[name] / scale[name] for name, weight in self.weights if scale[name] > 0)

    def admits(self, course: Course) -> bool:
        """Return True if the course keeps the limits."""
        waits = self.longest_wait_s is None or course.longest_wait_s <= self.longest_wait_s
        return waits and (self.least_share is None or least_share(course) >= self.least_share)


def read(text: str) -> Goal:
    """Return the goal of `MEASURE[=WEIGHT],..[,LIMIT<=VALUE]`. Raise InvalidRequest, which names the choices."""
    parts = [each.strip() for each in text.split(",")]
    tiers = [part.removeprefix(OF_TIER) for part in parts if part.startswith(OF_TIER)]
    if len(tiers) > 1 or "" in tiers:
        raise InvalidRequest(FIELD, f"name one tier, as {OF_TIER}gold, or none")
    rest = [part for part in parts if part != PER_USER and not part.startswith(OF_TIER)]
    limits = {name: limit for part in rest for name, limit in _limit(part)}
    weights = _weights([part for part in rest if not any(_limit(part))])
    return Goal(weights=weights, per_user=PER_USER in parts, tier=tiers[0] if tiers else "", **limits)


def _limit(part: str) -> Iterator[tuple[str, float]]:
    """Yield the limit that the part of a goal is, if it is one."""
    for name, sign in LIMITS.items():
        if part.startswith(name + sign):
            yield name, _number(part.removeprefix(name + sign), part)


def _weights(parts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Return the measures with their weights, sorted."""
    weights: dict[str, float] = {}
    for part in parts:
        name, equals, weight = part.partition("=")
        if name not in MEASURES:
            limits = (f"{each}{sign}NUMBER" for each, sign in LIMITS.items())
            choices = ", ".join((*MEASURES, PER_USER, f"{OF_TIER}NAME", *limits))
            raise InvalidRequest(FIELD, f"there is no {part!r}; choose of {choices}{did_you_mean(name, MEASURES)}")
        if name in weights:
            raise InvalidRequest(FIELD, f"names {name} twice; name each measure once")
        weights[name] = _number(weight, part) if equals else 1.0
    if not weights:
        raise InvalidRequest(FIELD, f"has limits only; name what to make small: {', '.join(MEASURES)}")
    return tuple(sorted(weights.items()))


def check_tier(goal: Goal, tiers: Collection[str]) -> None:
    """Raise InvalidRequest if the goal is for a tier that there is not."""
    if goal.tier and goal.tier not in tiers:
        choices = f"choose of {', '.join(sorted(tiers))}{did_you_mean(goal.tier, tiers)}"
        raise InvalidRequest(FIELD, f"there is no tier {goal.tier!r}; {choices}")


def _number(text: str, part: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InvalidRequest(FIELD, f"{part!r}: give a positive number")
    return number


# --- what a course costs ----------------------------------------------------------------------------------------


def costs(course: Course, *, tail_from: float | None = None) -> dict[str, float]:
    """Return what each measure costs over the course, a mean for a job where it belongs to jobs; 0 without jobs.

    `tail_from`: the slowdown from which on a job is of the tail; None: the 99 % quantile of these jobs.
    """
    if not len(course.indices):
        return dict.fromkeys(MEASURES, 0.0)
    return {name: float(of(course, tail_from)) for name, of in _COSTS.items()}


def slowdowns(course: Course) -> FloatArray:
    """Return the slowdown of each job at the end of the course, (n,): time since submission over time alone."""
    return course.elapsed_s(course.ended_at_s) / course.ideal_s


def tail_from(courses: Sequence[Course]) -> float:
    """Return the slowdown from which on a job is of the tail, the 99 % quantile over all these courses."""
    every = np.concatenate([np.ones(1), *(slowdowns(each) for each in courses)])
    return float(np.quantile(every, 1 - TAIL))


def least_share(course: Course) -> float:
    """Return the smallest share of a job, as in `Goal`; +inf without jobs."""
    elapsed_s = np.maximum(course.elapsed_s(course.ended_at_s), 1e-9)
    return float((course.isolated_s / elapsed_s).min(initial=math.inf))


def _growth(course: Course, of_time: Callable[[FloatArray], FloatArray]) -> float:
    """Return by how much the mean of `of_time(instant of each job)` grew in the course."""
    began_s = np.full(len(course.indices), course.from_s)
    return float(np.mean(of_time(course.ended_at_s) - of_time(began_s)))


def _tail_slowdown(course: Course, tail_from: float | None) -> float:
    """Return the mean slowdown of the worst jobs (CVaR), c + E (S - c)+ / 0.01 (Rockafellar and Uryasev, 2000)."""
    least = float(np.quantile(slowdowns(course), 1 - TAIL)) if tail_from is None else tail_from
    beyond = _growth(course, lambda at_s: np.maximum(course.elapsed_s(at_s) / course.ideal_s - least, 0.0))
    return least + beyond / TAIL


_COSTS: Mapping[str, Callable[[Course, float | None], float]] = {
    "mean_jct": lambda course, _: _growth(course, course.elapsed_s),
    "mean_slowdown": lambda course, _: _growth(course, lambda at_s: course.elapsed_s(at_s) / course.ideal_s),
    "tail_slowdown": _tail_slowdown,
    "finish_time_fairness": lambda course, _: _growth(
        course, lambda at_s: np.maximum(course.elapsed_s(at_s) / course.isolated_s - 1.0, 0.0)
    ),
    "makespan": lambda course, _: float(course.ended_at_s.max() - course.from_s),
    "tardiness": lambda course, _: _growth(course, lambda at_s: np.maximum(at_s - course.deadline_at_s, 0.0)),
    "money": lambda course, _: float(course.cost_usd.mean()),
}

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "mean_jct": "seconds from submission to completion",
        "mean_slowdown": "completion time over the time alone on the fastest type",
        "tail_slowdown": "mean slowdown of the worst 1 % of the jobs (CVaR)",
        "finish_time_fairness": "by how much completion is later than on an equal share of the cluster, as a fraction",
        "makespan": "seconds until the last job has ended",
        "tardiness": "seconds after the deadline, 0 for a job that has none",
        "money": "USD for the workers that a job holds",
    }
)
"""Measures that a goal may have (name -> what it is); all are the smaller the better."""
