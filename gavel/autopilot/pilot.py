"""The autopilot over a simulated cluster: a run in epochs, each under what was decided at its beginning.

It sees what a scheduler sees: lengths that jobs state, and how long those were that have ended.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from gavel.autopilot import node_losses
from gavel.autopilot.composition import read
from gavel.autopilot.decision import Decision, Question, decide
from gavel.autopilot.futures import Arrival
from gavel.autopilot.goals import Goal
from gavel.autopilot.learning import Epoch, Experience
from gavel.autopilot.lesson import Past, lesson
from gavel.autopilot.racing import STAGES
from gavel.autopilot.switch_rule import SwitchRule
from gavel.mechanism.planning.problem import ClusterColumns
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active
from gavel.simulator.lean import LeanWorld, Plan
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.simulator.world_state import WorldState
from workloads.traces.job import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """How a run is flown. `candidates`: texts of compositions; the first is safe, and in force at the beginning."""

    goal: Goal
    candidates: tuple[str, ...]
    epoch_s: float
    seed: int = 0
    rule: SwitchRule = field(default_factory=SwitchRule)
    stages: tuple[int, ...] = STAGES


class Pilot:
    """One run. As in LeanWorld, `rounds` goes from round to round; `decisions` are those so far, `epochs` those over.

    `cpu_s` returns the CPU seconds of this process; `decision_s` are those of each decision, with its replays.
    """

    def __init__(
        self,
        jobs: Iterable[TraceJob],
        scenario: Scenario,
        runner: PolicyRunner,
        flight: Flight,
        cpu_s: Callable[[], float],
    ) -> None:
        self._flight, self._runner, self._cpu_s = flight, runner, cpu_s
        self._service, self._outages = replace(scenario, outages=()), scenario.outages
        self.in_force = flight.candidates[0]
        settings = read(self.in_force, scenario.settings).settings(scenario.settings)
        self._arrived: list[TraceJob] = []
        self._world = LeanWorld(self._noting(jobs), replace(scenario, settings=settings), runner)
        self._columns = ClusterColumns.of(scenario.cluster)
        self._s_per_step: dict[int, float] = {}
        self._question: Question | None = None
        self._experience = Experience()
        self._switched_at_s: tuple[float, ...] = ()
        self._due_s = -inf
        self.decisions: list[Decision] = []
        self.questions: list[Question] = []
        self.epochs: list[Epoch] = []
        self.decision_s: list[float] = []

    def rounds(self) -> Iterator[Plan]:
        """Yield each round's start and gangs, until every measured job has ended."""
        return self._world.rounds(self._before_round)

    @property
    def completed(self) -> int:
        """Return how many measured jobs have ended so far."""
        return self._world.completed

    def result(self) -> SimulationOutcome:
        """Return the outcome so far."""
        return self._world.result()

    def _noting(self, jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
        for job in jobs:
            self._arrived.append(job)
            yield job

    # --- an epoch ends, and another one begins -------------------------------------------------------------------

    def _before_round(self, now_s: float) -> None:
        if now_s < self._due_s:
            return
        began_s = self._cpu_s()
        state, history = self._world.state(now_s), self._history(now_s)
        if self._question:
            self._learn(self._question, self.decisions[-1], state, history)
        self._question = self._question_now(state, history)
        decision = decide(self._question, self._runner)
        self.decisions.append(decision)
        self.questions.append(self._question)
        self._follow(decision)
        self._due_s = now_s + self._flight.epoch_s
        self.decision_s.append(self._cpu_s() - began_s)

    def _question_now(self, state: WorldState, history: tuple[Arrival, ...]) -> Question:
        flight = self._flight
        return Question(
            number=len(self.decisions),
            seed=flight.seed,
            goal=flight.goal,
            candidates=flight.candidates,
            incumbent=self.in_force,
            state=state,
            scenario=self._service,
            history=history,
            epoch_s=flight.epoch_s,
            experience=self._experience,
            switched_at_s=self._switched_at_s,
            rule=flight.rule,
            stages=flight.stages,
            losses=node_losses.seen(self._outages, state.at_s),
        )

    def _follow(self, decision: Decision) -> None:
        if decision.chosen != self.in_force:
            self.in_force = decision.chosen
            self._switched_at_s = (*self._switched_at_s, decision.at_s)
            service = self._service.settings
            self._world.follow(read(self.in_force, service).settings(service))

    def _history(self, now_s: float) -> tuple[Arrival, ...]:
        """Return the jobs that have arrived, in order, with the steps that those have made which have ended."""
        state = self._world.state(now_s)
        alone = (1.0 / Active.of(state.active).fastest_rate).tolist()
        self._s_per_step.update(zip(state.active.indices, alone, strict=True))
        ended = {int(row.id): row.fastest_s or 0.0 for row in self._world.result().rows}
        return tuple(
            _arrival(self._arrived[index], self._s_per_step.get(index), ended.get(index))
            for index in range(state.jobs_seen)
        )

    # --- what an epoch has taught --------------------------------------------------------------------------------

    def _learn(self, question: Question, decision: Decision, state: WorldState, history: tuple[Arrival, ...]) -> None:
        past = Past(
            question=question,
            in_force=decision.chosen,
            yardstick=decision.yardstick,
            scores=decision.scores,
            rows=self._world.result().rows,
            state=state,
            history=history,
            outages=self._outages,
        )
        self.epochs.append(lesson(past, self._runner))
        self._experience = self._experience.after(self.epochs[-1], question.candidates[0])


def _arrival(job: TraceJob, s_per_step: float | None, fastest_s: float | None) -> Arrival:
    """Return the job as history has it; `fastest_s`: alone on its fastest type, None until it has ended."""
    if fastest_s is None:
        return Arrival(job=job, s_per_step=s_per_step or 1.0)
    return Arrival(job=job, s_per_step=fastest_s / job.total_steps, made_steps=job.total_steps)
