"""One decision: which composition to use from now on, with all that was weighed, so that it can be made again.

1. Compositions race on futures drawn from the seed, the same for all. 2. Costs are corrected by what the simulator was
wrong about before. 3. The best one replaces the incumbent if its gain is clear. It is a pure function of its question.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from gavel.autopilot import node_losses
from gavel.autopilot.composition import Composition, read
from gavel.autopilot.course import Course
from gavel.autopilot.digest import digest
from gavel.autopilot.features import features
from gavel.autopilot.futures import Arrival, Future, drawn
from gavel.autopilot.goals import Goal, costs, tail_from
from gavel.autopilot.learning import Experience
from gavel.autopilot.prior import ENDED_LEAST, start
from gavel.autopilot.racing import STAGES, gains, standard_error, surviving
from gavel.autopilot.rollout import Situation, rolled_out
from gavel.autopilot.switch_rule import SwitchRule
from gavel.ports import PolicyRunner
from gavel.simulator.outcome import NodeOutage, Scenario
from gavel.simulator.world_state import WorldState
from gavel.types import FloatArray
from gavel.types.autopilot import CompositionScore

JOBS_MAX = 25_000  # in all simulations of a decision after the first stage, so that it is in time
ELASTIC = 5  # a simulation in which rounds choose sizes takes as long as one of so many times its jobs
PREFERENCE = 0.01  # of the incumbent's cost, for each unit by which the logarithms of two Hedge weights differ


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """Everything that a decision hangs on. `candidates`: texts of compositions; the first is the safe one.

    `scenario`: cluster, throughputs, tiers, and the service's settings. `history`: jobs in order of arrival.
    `switched_at_s`: earlier switches, in order. `stages`: see racing.
    """

    number: int
    seed: int
    goal: Goal
    candidates: tuple[str, ...]
    incumbent: str
    state: WorldState
    scenario: Scenario
    history: tuple[Arrival, ...]
    epoch_s: float
    experience: Experience
    switched_at_s: tuple[float, ...] = ()
    rule: SwitchRule = field(default_factory=SwitchRule)
    stages: tuple[int, ...] = STAGES
    losses: tuple[NodeOutage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What costs are measured by in one decision: where the tail begins, and the mean of each measure."""

    tail_from: float
    scale: Mapping[str, float]

    def cost(self, goal: Goal, course: Course) -> float:
        """Return the goal's cost of the course."""
        return goal.cost(costs(goal.counted(course), tail_from=self.tail_from), self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was chosen and why. `inputs_digest` is that of the question, but for the times that solvers took."""

    number: int
    at_s: float
    seed: int
    goal: str
    incumbent: str
    chosen: str
    reason: str
    inputs_digest: str
    yardstick: Yardstick
    scores: tuple[CompositionScore, ...]


def decide(question: Question, runner: PolicyRunner) -> Decision:
    """Return the decision. The same question has the same decision."""
    race = _Race(question, runner)
    race.run()
    scores = race.scores()
    chosen, reason = _chosen(question, race, scores)
    return Decision(
        number=question.number,
        at_s=question.state.at_s,
        seed=question.seed,
        goal=question.goal.text,
        incumbent=question.incumbent,
        chosen=chosen,
        reason=reason,
        inputs_digest=digest(question),
        yardstick=race.yardstick,
        scores=scores,
    )


def verify(decision: Decision, question: Question, runner: PolicyRunner) -> tuple[str, ...]:
    """Return what differs if the decision is made again from its question; () if nothing does."""
    again = decide(question, runner)
    names = ("inputs_digest", "chosen", "reason", "scores", "yardstick")
    return tuple(name for name in names if getattr(again, name) != getattr(decision, name))


def futures(question: Question) -> Iterator[Future]:
    """Yield futures without end, each from the seed, the decision's number and its own number."""
    number, now_s = 0, question.state.at_s
    while True:
        random = np.random.default_rng([question.seed, question.number, number])
        until_s = now_s + question.epoch_s
        future = drawn(question.state.active, question.history, now_s=now_s, until_s=until_s, random=random)
        yield replace(future, outages=_outages(question, until_s, random))
        number += 1


def _outages(question: Question, until_s: float, random: np.random.Generator) -> tuple[NodeOutage, ...]:
    begins_s = [each.job.submitted_at_s for each in question.history[:1]] + [each.from_s for each in question.losses]
    return node_losses.drawn(
        question.losses,
        [node.name for node in question.scenario.cluster.nodes],
        since_s=min(begins_s, default=question.state.at_s),
        now_s=question.state.at_s,
        until_s=until_s,
        random=random,
    )


class _Race:
    """The courses of each candidate on the futures drawn so far, and what they cost."""

    def __init__(self, question: Question, runner: PolicyRunner) -> None:
        self._question, self._runner = question, runner
        self._compositions = [read(text, question.scenario.settings) for text in question.candidates]
        self._situation = Situation(
            state=question.state, scenario=question.scenario, horizon_s=question.state.at_s + question.epoch_s
        )
        self.incumbent = question.candidates.index(question.incumbent)
        self.courses: list[list[Course]] = [[] for _ in self._compositions]
        self.is_left = np.ones(len(self._compositions), dtype=bool)
        self.corrections = self._corrections()

    def _corrections(self) -> FloatArray:
        question = self._question
        phi = features(question.state.active, question.history, len(question.scenario.cluster.workers))
        return np.array([question.experience.correction(text, phi) for text in question.candidates])

    def run(self) -> None:
        """Try the compositions that are left on more futures, stage by stage."""
        every, first = futures(self._question), self._question.stages[0]
        for stage in self._question.stages:
            count = stage - len(self.courses[self.incumbent])
            for future in islice(every, count if stage == first else self._affordable(count)):
                for courses, composition in self._running():
                    courses.append(rolled_out(self._situation, composition, future, self._runner))
            if stage == first:
                self.yardstick = _yardstick(self._question.goal, self.courses, self.incumbent)
            self._drop()

    def _affordable(self, futures: int) -> int:
        """Return on how many more of these futures to try those that are left: none if one is left, and no limit."""
        left = int(self.is_left.sum())
        if left == 1 and not self._question.goal.has_limits:
            return 0
        as_long_as = ELASTIC if self._question.scenario.is_elastic else 1
        simulated = [as_long_as * len(course.indices) for courses in self.courses for course in courses]
        each = left * max(1.0, float(np.mean(simulated)))
        return min(futures, max(0, int((JOBS_MAX - sum(simulated)) / each)))

    def _running(self) -> list[tuple[list[Course], Composition]]:
        pairs = zip(self.courses, self._compositions, self.is_left, strict=True)
        return [(courses, composition) for courses, composition, is_alive in pairs if is_alive]

    def _drop(self) -> None:
        """Drop those that break a limit, and those that are behind."""
        for row, courses in enumerate(self.courses):
            admits = all(self._question.goal.admits(course) for course in courses)
            self.is_left[row] &= admits or row == self.incumbent
        rows = np.flatnonzero(self.is_left)
        table = np.array([self.costs(int(row)) for row in rows])
        stays = surviving(table, rows.tolist().index(self.incumbent))
        self.is_left[rows] = stays

    def costs(self, row: int) -> FloatArray:
        """Return the corrected cost of a candidate in each future that it was tried on."""
        goal, courses = self._question.goal, self.courses[row]
        predicted: FloatArray = np.array([self.yardstick.cost(goal, course) for course in courses])
        return np.asarray(self.corrections[row] * predicted)

    def gain(self, row: int) -> FloatArray:
        """Return by how much less it costs than the incumbent, in each future that it was tried on."""
        own = self.costs(row)
        return np.asarray(gains(np.array([self.costs(self.incumbent)[: len(own)], own]), 0)[1])

    def scores(self) -> tuple[CompositionScore, ...]:
        """Return the scores, in the order of the candidates."""
        return tuple(self._score(row, text) for row, text in enumerate(self._question.candidates))

    def _score(self, row: int, text: str) -> CompositionScore:
        question, gain = self._question, self.gain(row)
        of_incumbent = max(float(self.costs(self.incumbent)[: len(gain)].mean()), 1e-12)
        until_s, seen = question.state.at_s + question.epoch_s, question.state.jobs_seen
        epoch = [self.yardstick.cost(question.goal, course.until(until_s, seen)) for course in self.courses[row]]
        return CompositionScore(
            composition=text,
            futures=len(gain),
            cost=float(self.costs(row).mean()),
            gain=float(gain.mean()) / of_incumbent,
            error=float(standard_error(gain)) / of_incumbent,
            epoch_cost=float(np.mean(epoch)),
            correction=float(self.corrections[row]),
            preference=PREFERENCE * question.experience.preference(text, question.incumbent),
            keeps_limits=all(question.goal.admits(course) for course in self.courses[row]),
        )


def _yardstick(goal: Goal, courses: Sequence[Sequence[Course]], incumbent: int) -> Yardstick:
    """Return what costs are measured by, from the courses of the first stage."""
    least = tail_from([goal.counted(course) for course in courses[incumbent]])
    every = [costs(goal.counted(course), tail_from=least) for of_one in courses for course in of_one]
    return Yardstick(
        tail_from=least,
        scale={name: float(np.mean([each[name] for each in every])) for name, _ in goal.weights},
    )


def _chosen(question: Question, race: _Race, scores: Sequence[CompositionScore]) -> tuple[str, str]:
    """Return the composition for the coming epoch, and why."""
    safe, own = question.candidates[0], question.incumbent
    if question.experience.is_fallen_back:
        return safe, f"the last epochs cost more than {safe} would have: the safe composition is in force for a while"
    prior = start(question.goal, question.candidates, question.history)
    if prior and scores[question.candidates.index(prior)].keeps_limits:
        return prior, f"fewer than {ENDED_LEAST} jobs have ended, too few to simulate by: {prior} is a sound start"
    left = [score for score, is_left in zip(scores, race.is_left, strict=True) if is_left and score.composition != own]
    best = max(left, key=lambda score: score.gain + score.preference, default=None)
    if best is None:
        return own, "every other composition is behind, or breaks a limit" if len(scores) > 1 else "there is no other"
    row = question.candidates.index(best.composition)
    cost = float(race.costs(race.incumbent).mean())
    breaks = not scores[race.incumbent].keeps_limits
    if not breaks and not question.rule.is_clear(race.gain(row), cost, best.preference * cost):
        return own, _unclear(best)
    if refusal := question.rule.refusal(question.switched_at_s, question.state.at_s, question.epoch_s):
        return own, refusal
    why = "and the one in force breaks a limit" if breaks else f"tried on {best.futures} futures"
    return best.composition, f"it gains {100 * best.gain:.1f} % +- {100 * best.error:.1f} over {own}, {why}"


def _unclear(best: CompositionScore) -> str:
    """Return why the best of the others is not used."""
    percent = f"{100 * abs(best.gain):.1f} % +- {100 * best.error:.1f}"
    if best.gain > 0:
        return f"{best.composition} would gain {percent}, which is not clear"
    return f"no other composition gains: {best.composition}, the best of them, would cost {percent} more"
