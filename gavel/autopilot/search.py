"""Weights of the priority rule for one's own history: searched on its first part, proved on its last part.

Each weighting is a run of the lean simulation over jobs of the history with their real lengths. Differential evolution
(Storn and Price, 1997; scipy's) starts from the well-known orders, which are points of the same space, so what it
returns is no worse than these on the first part. Only the last part, which the search does not see, can prove a gain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import differential_evolution

from gavel.autopilot.course import course_of_rows
from gavel.autopilot.goals import Goal, costs
from gavel.errors import InvalidRequest
from gavel.policies.registry import canonical
from gavel.policies.weighted_priority import FEATURES, RULES, WeightedPriority
from gavel.ports import PolicyRunner
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario
from gavel.types import FloatArray
from workloads.traces.job import TraceJob

SEARCHED_PART = 0.6  # of the jobs, in order of arrival
MARGIN = 0.03  # the gain over the best fixed policy, on the last part, that is enough for the portfolio
BOUND = 2.0  # of each weight, either sign; only their ratios matter
POPULATION = 12  # weightings of a generation; the first are the well-known orders
DIGITS = 2  # after the point: the text has exactly the weights that were tried
LEAST_JOBS = 20
FIXED = (
    *RULES,
    "max_min_fairness",
    "rank_weighted_speed?length=attained_service",
)
"""Policies that the rule has to beat if none are named."""

Cost = Callable[[str, Sequence[TraceJob]], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a search came to. `searched` and `proved`: the goal's cost of each policy on the two parts of the history,
    1 for the mean of the fixed policies; `rule` is among them. `searched_jobs`, `proved_jobs`: how many jobs they have.
    """

    goal: str
    rule: str
    seed: int
    trials: int
    searched_jobs: int
    proved_jobs: int
    searched: Mapping[str, float]
    proved: Mapping[str, float]

    @property
    def best_fixed(self) -> str:
        """Return the fixed policy that was best on the last part, which nobody knows before."""
        return min((name for name in self.proved if name != self.rule), key=lambda name: self.proved[name])

    @property
    def gain(self) -> float:
        """Return by which part the rule costs less than the best fixed policy on the last part; negative: more."""
        return 1 - self.proved[self.rule] / self.proved[self.best_fixed]

    @property
    def is_proved(self) -> bool:
        """Return True if the rule belongs into the portfolio."""
        return self.gain >= MARGIN


def searched(
    jobs: Sequence[TraceJob],
    scenario: Scenario,
    goal: Goal,
    runner: PolicyRunner,
    *,
    trials: int,
    seed: int,
    fixed: Sequence[str] = FIXED,
) -> Proof:
    """Return the best rule of about `trials` weightings, with its proof. The same arguments have the same answer.

    Raise InvalidRequest for a history that is too short, and for a goal with limits.
    """
    _check(jobs, goal)
    cut = round(SEARCHED_PART * len(jobs))
    names = tuple(dict.fromkeys(canonical(each, scenario.settings.policy_dir) for each in fixed))
    first, last = (_Part(part, scenario, goal, runner, names) for part in (jobs[:cut], jobs[cut:]))
    rule = _best(first, trials, seed)
    return Proof(
        goal=goal.text,
        rule=rule,
        seed=seed,
        trials=trials,
        searched_jobs=cut,
        proved_jobs=len(jobs) - cut,
        searched={name: first.cost(name) for name in (*names, rule)},
        proved={name: last.cost(name) for name in (*names, rule)},
    )


def _check(jobs: Sequence[TraceJob], goal: Goal) -> None:
    if len(jobs) < LEAST_JOBS:
        raise InvalidRequest("trace", f"has {len(jobs)} jobs; a search needs {LEAST_JOBS} at least")
    if goal.longest_wait_s is not None or goal.least_share is not None:
        raise InvalidRequest("goal", "the search makes measures small and knows no limits; leave those out")


class _Part:
    """Costs of policies on one part of the history, each simulated once."""

    def __init__(
        self, jobs: Sequence[TraceJob], scenario: Scenario, goal: Goal, runner: PolicyRunner, fixed: Sequence[str]
    ) -> None:
        self._jobs, self._scenario, self._goal, self._runner = jobs, replace(scenario, measure=None), goal, runner
        self._measures: dict[str, Mapping[str, float]] = {}
        every = [self._of(name) for name in fixed]
        self._scale = {name: float(np.mean([each[name] for each in every])) for name, _ in goal.weights}

    def cost(self, policy: str) -> float:
        """Return the goal's cost, 1 for the mean of the fixed policies."""
        whole = sum(weight for _, weight in self._goal.weights)
        return self._goal.cost(self._of(policy), self._scale) / whole

    def _of(self, policy: str) -> Mapping[str, float]:
        if policy not in self._measures:
            settings = self._scenario.settings.model_copy(update={"policy": policy})
            outcome = simulate(self._jobs, replace(self._scenario, settings=settings), runner=self._runner)
            self._measures[policy] = costs(course_of_rows(outcome.rows))
        return self._measures[policy]


def _best(part: _Part, trials: int, seed: int) -> str:
    """Return the text of the cheapest weighting that was tried."""
    tried: dict[str, float] = {}

    def cost(weights: FloatArray) -> float:
        text = rule_of(weights)
        tried[text] = part.cost(text)
        return tried[text]

    differential_evolution(
        cost,
        [(-BOUND, BOUND)] * len(FEATURES),
        init=_first_generation(np.random.default_rng(seed)),
        maxiter=max(0, trials // POPULATION - 1),
        rng=np.random.default_rng([seed, 1]),
        polish=False,
        tol=0.0,
    )
    return min(tried, key=lambda text: (tried[text], text))


def _first_generation(random: np.random.Generator) -> FloatArray:
    """Return the well-known orders, then weightings near one of them, (population, features)."""
    orders = np.array([[getattr(rule, name) for name in FEATURES] for rule in RULES.values()])
    near = orders[random.integers(len(orders), size=POPULATION - len(orders))]
    drawn = near + random.normal(0.0, 0.4, near.shape)
    return np.asarray(np.clip(np.concatenate([orders, drawn]), -BOUND, BOUND))


def rule_of(weights: Sequence[float] | FloatArray) -> str:
    """Return the text of the policy with these weights, in the order of FEATURES."""
    named = {name: round(float(each), DIGITS) for name, each in zip(FEATURES, weights, strict=True)}
    parameters = "&".join(f"{name}={each:g}" for name, each in named.items() if each)
    return canonical(f"{WeightedPriority.name}?{parameters}" if parameters else WeightedPriority.name)
