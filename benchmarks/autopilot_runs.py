"""One run of a case: under the autopilot, a selector that learns from rewards, a table by label, or one composition."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.autopilot_cases import DRAWN, Case, phases
from benchmarks.bandits import AtRandom, LinUcb, Selector, Ucb1
from gavel.autopilot.composition import read
from gavel.autopilot.course import course_of, course_of_rows
from gavel.autopilot.features import COUNT, features
from gavel.autopilot.futures import Arrival
from gavel.autopilot.goals import Goal, costs
from gavel.autopilot.pilot import Flight, Pilot
from gavel.policies.inline import InlineRunner
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import SimulationOutcome
from gavel.simulator.world_state import WorldState
from workloads.traces.job import TraceJob

RUNNER = InlineRunner()
AUTOPILOT, RANDOM, UCB1, LINUCB, LABEL = "autopilot", "random", "UCB1", "LinUCB", "table by label"
STAGES = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run cost by measure, how often its composition changed, and the CPU seconds of each decision."""

    costs: dict[str, float]
    switches: int = 0
    decision_s: tuple[float, ...] = ()


def fixed(case: Case, composition: str) -> Ran:
    """Return the run under one composition."""
    world = _world(case, composition, case.trace())
    return Ran(costs=_costs(case, _ended(world, world.rounds())))


def flown(case: Case, measure: str) -> Ran:
    """Return the run under the autopilot."""
    flight = Flight(
        goal=case.goal(measure),
        candidates=case.candidates,
        epoch_s=case.epoch_s(),
        seed=case.seed,
        stages=STAGES,
    )
    pilot = Pilot(case.trace(), case.scenario(), RUNNER, flight, time.process_time)
    outcome = _ended(pilot, pilot.rounds())
    switches = sum(each.chosen != each.incumbent for each in pilot.decisions)
    return Ran(costs=_costs(case, outcome), switches=switches, decision_s=tuple(pilot.decision_s))


def selected(case: Case, measure: str, name: str) -> Ran:
    """Return the run under a selector that sees the rewards of epochs."""
    arms = len(case.candidates)
    of: dict[str, Callable[[], Selector]] = {
        RANDOM: lambda: AtRandom(arms, np.random.default_rng(case.seed)),
        UCB1: lambda: Ucb1(arms),
        LINUCB: lambda: LinUcb(arms, COUNT),
    }
    epochs = _Epochs(case, case.goal(measure), of[name]())
    return Ran(costs=_costs(case, _ended(epochs.world, epochs.rounds())), switches=epochs.switches)


def labelled(case: Case, table: dict[str, str]) -> Ran:
    """Return the run of phases where each job's workload is told, and a table has the composition for it."""
    labels = [label for _, label in phases(case.jobs, case.seed)]
    world = _world(case, table[labels[0]], case.trace())
    chosen, switches = [table[labels[0]]], 0

    def before_round(now_s: float) -> None:
        nonlocal switches
        wanted = table[labels[world.state(now_s).jobs_seen - 1]]
        if wanted != chosen[-1]:
            chosen.append(wanted)
            switches += 1
            base = case.scenario().settings
            world.follow(read(wanted, base).settings(base))

    outcome = _ended(world, world.rounds(before_round))
    return Ran(costs=_costs(case, outcome), switches=switches)


def best_by_label(case: Case, label: str, measure: str) -> str:
    """Return the best composition of a workload of the suite alone, with another seed than that of the case."""
    alone = replace(case, name=label, seed=case.seed + DRAWN)
    return min(case.candidates, key=lambda each: fixed(alone, each).costs[measure])


class _Epochs:
    """A run in epochs, each under what a selector chose."""

    def __init__(self, case: Case, goal: Goal, selector: Selector) -> None:
        self._case, self._goal, self._selector = case, goal, selector
        self._jobs, self._scenario = case.trace(), case.scenario()
        self.world = _world(case, case.candidates[0], self._jobs)
        self._due_s, self._arm, self.switches = -np.inf, 0, 0
        self._before: tuple[WorldState, np.ndarray] | None = None
        self._epoch_costs: list[float] = []

    def rounds(self) -> Iterator[object]:
        """Yield the rounds, until all jobs have ended."""
        return self.world.rounds(self._before_round)

    def _before_round(self, now_s: float) -> None:
        if now_s < self._due_s:
            return
        state = self.world.state(now_s)
        if self._before:
            self._selector.learn(self._arm, self._before[1], self._reward(self._before[0], state))
        seen = features(state.active, self._history(state), len(self._scenario.cluster.workers))
        arm = self._selector.choose(seen)
        self.switches += arm != self._arm
        self._arm, self._before, self._due_s = arm, (state, seen), now_s + self._case.epoch_s()
        base = self._scenario.settings
        self.world.follow(read(self._case.candidates[arm], base).settings(base))

    def _history(self, state: WorldState) -> tuple[Arrival, ...]:
        return tuple(Arrival(job=job, s_per_step=1.0) for job in self._jobs[: state.jobs_seen])

    def _reward(self, before: WorldState, state: WorldState) -> float:
        course = course_of(
            self.world.result().rows,
            state.active,
            self._scenario,
            from_s=before.at_s,
            until_s=state.at_s,
            spent=before.active,
        )
        measured = costs(self._goal.counted(course))
        self._epoch_costs.append(sum(measured[name] for name, _ in self._goal.weights))
        mean = float(np.mean(self._epoch_costs))
        return 1 / (1 + self._epoch_costs[-1] / mean) if mean > 0 else 0.5


def _world(case: Case, composition: str, jobs: list[TraceJob]) -> LeanWorld:
    scenario = case.scenario()
    settings = read(composition, scenario.settings).settings(scenario.settings)
    return LeanWorld(jobs, replace(scenario, settings=settings), RUNNER)


def _ended(world: LeanWorld | Pilot, rounds: Iterator[object]) -> SimulationOutcome:
    for _ in rounds:
        pass
    return world.result()


def _costs(case: Case, outcome: SimulationOutcome) -> dict[str, float]:
    return costs(case.goal("mean_jct").counted(course_of_rows(outcome.rows)))
