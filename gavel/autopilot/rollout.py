"""What a composition would make of one future: the simulation of `gavel simulate`, from the live state to the end.

Rounds are those of the composition until the horizon. What is left then is drained under it in longer rounds with fewer
solves, so that a decision is in time; what the drain does not end is taken to end with all the work that is left.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from gavel.autopilot.composition import Composition
from gavel.autopilot.course import Course, course_of
from gavel.autopilot.futures import Future
from gavel.config import Settings
from gavel.errors import InvariantViolated
from gavel.mechanism.planning.problem import ClusterColumns
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active
from gavel.simulator.lean import LeanWorld, Plan
from gavel.simulator.outcome import Scenario
from gavel.simulator.world_state import WorldState

DRAIN_ROUNDS = 100  # about so many rounds of the drain, if no job ended
ROUNDS_MAX = 4000  # in one simulation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """What all compositions are tried on: a state, the scenario around it, and until when jobs arrive and rounds are
    those of the composition.
    """

    state: WorldState
    scenario: Scenario
    horizon_s: float


def rolled_out(of: Situation, composition: Composition, future: Future, runner: PolicyRunner) -> Course:
    """Return the course of the present and the arriving jobs of `future`, from now until they have ended."""
    settings = composition.settings(of.scenario.settings)
    state = replace(of.state, active=of.state.active.ending_at(future.ends_at_step))
    scenario = replace(of.scenario, settings=settings, measure=None, outages=future.outages)
    run = _Run(LeanWorld(future.arrivals, scenario, runner, state), settings, of)
    run.to_its_end()
    columns = ClusterColumns.of(scenario.cluster)
    left = run.world.state(run.now_s)
    outcome = run.world.result()
    course = course_of(
        outcome.rows,
        left.active,
        scenario,
        from_s=of.state.at_s,
        until_s=(run.now_s if left.active.jobs else outcome.tally.ended_at_s) + _left_s(left, columns),
        spent=state.active,
    )
    return replace(course, longest_wait_s=_longest_wait_s(course, run.first_s, state))


class _Run:
    """One simulation: `first_s` is the start of each job that a round started, `now_s` that of the last round."""

    def __init__(self, world: LeanWorld, settings: Settings, of: Situation) -> None:
        self.world, self._settings, self._of = world, settings, of
        self.first_s: dict[int, float] = {}
        self.now_s = of.state.at_s
        self._is_drain = False

    def to_its_end(self) -> None:
        """Go from round to round until all jobs have ended, no gang can run any more, or it takes too long."""
        with suppress(InvariantViolated):
            for start_s, _ in self._rounds():
                self.now_s = start_s

    def _rounds(self) -> Iterator[Plan]:
        for plan in islice(self.world.rounds(self._before_round), ROUNDS_MAX):
            for index in self.world.named(plan):
                self.first_s.setdefault(index, plan[0])
            yield plan

    def _before_round(self, now_s: float) -> None:
        if not self._is_drain and now_s >= self._of.horizon_s:
            self._is_drain = True
            self.world.follow(_draining(self._settings, self.world.state(now_s), self._of))


def _draining(settings: Settings, state: WorldState, of: Situation) -> Settings:
    """Return the settings with fewer solves, and rounds of which the longest job that is left has DRAIN_ROUNDS."""
    left_s = Active.of(state.active).left_alone_s()
    round_s = max(settings.round_duration_s, float(left_s.max(initial=0.0)) / DRAIN_ROUNDS)
    return settings.model_copy(update={"solve_on": "event", "round_duration_s": round_s})


def _longest_wait_s(course: Course, first_s: Mapping[int, float], state: WorldState) -> float:
    """Return the longest time from submission to the first start, of jobs that had not started before.

    A job that no round started had workers in the middle of one, and ended there; or it never had any.
    """
    blocks = Active.of(state.active)
    has_run = blocks.received_s.sum(axis=1) > 0
    began = {index for index, ran in zip(state.active.indices, has_run.tolist(), strict=True) if ran}
    ends = zip(course.indices.tolist(), course.submitted_at_s.tolist(), course.ended_at_s.tolist(), strict=True)
    waits = [first_s.get(index, end_s) - at_s for index, at_s, end_s in ends if index not in began]
    return max(waits, default=0.0)


def _left_s(left: WorldState, columns: ClusterColumns) -> float:
    """Return the seconds that all workers together need for what is left."""
    if not left.active.jobs:
        return 0.0
    active = Active.of(left.active)
    return float((active.left_alone_s() * active.scale_factor).sum() / columns.capacity_workers.sum())
