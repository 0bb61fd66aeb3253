"""The autopilot over a simulated cluster: a run in epochs, each under what was decided at its beginning.

It sees what a scheduler sees: lengths that jobs state, and how long those were that have ended.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from gavel.autopilot.composition import read
from gavel.autopilot.course import Course, course_of
from gavel.autopilot.decision import Decision, Question, decide
from gavel.autopilot.features import features, ln_rate
from gavel.autopilot.futures import Arrival, Future
from gavel.autopilot.goals import Goal
from gavel.autopilot.learning import Epoch, Experience
from gavel.autopilot.racing import STAGES
from gavel.autopilot.rollout import Situation, rolled_out
from gavel.autopilot.switch_rule import SwitchRule
from gavel.mechanism.planning.problem import ClusterColumns
from gavel.ports import PolicyRunner
from gavel.simulator.active import Active, ActiveState
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
        self._service = scenario
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
        ends = _believed(history, state.active)
        real = self._real(question, state, ends)
        future = _as_it_was(question.state, history, ends)
        situation = Situation(state=question.state, scenario=self._service, horizon_s=state.at_s)
        service, seen = self._service.settings, question.state.jobs_seen
        courses = {
            text: rolled_out(situation, read(text, service), future, self._runner) for text in question.candidates
        }
        goal, yardstick = question.goal, decision.yardstick
        epoch = Epoch(
            in_force=decision.chosen,
            real=yardstick.cost(goal, real.until(state.at_s, seen)),
            predicted={score.composition: score.epoch_cost for score in decision.scores},
            replayed={text: yardstick.cost(goal, course.until(state.at_s, seen)) for text, course in courses.items()},
            whole={text: yardstick.cost(goal, course) for text, course in courses.items()},
            features=features(question.state.active, question.history, len(self._service.cluster.workers)),
            ln_rate=ln_rate(history),
        )
        self.epochs.append(epoch)
        self._experience = self._experience.after(epoch, question.candidates[0])

    def _real(self, question: Question, state: WorldState, ends: tuple[int, ...]) -> Course:
        return course_of(
            self._world.result().rows,
            state.active.ending_at([ends[index] for index in state.active.indices]),
            capacity_workers=self._columns.capacity_workers,
            price_usd_per_hour=self._columns.price_usd_per_hour,
            from_s=question.state.at_s,
            until_s=state.at_s,
            spent=question.state.active,
        )


def _arrival(job: TraceJob, s_per_step: float | None, fastest_s: float | None) -> Arrival:
    """Return the job as history has it; `fastest_s`: alone on its fastest type, None until it has ended."""
    if fastest_s is None:
        return Arrival(job=job, s_per_step=s_per_step or 1.0)
    return Arrival(job=job, s_per_step=fastest_s / job.total_steps, made_steps=job.total_steps)


def _believed(history: tuple[Arrival, ...], active: ActiveState) -> tuple[int, ...]:
    """Return how many steps each job of the history makes, as anybody can know now, when those of `active` are left.

    What has ended is as long as it was, all else as it states, or longer than it is by now.
    """
    done = dict(zip(active.indices, Active.of(active).steps_done.tolist(), strict=True))
    return tuple(
        each.made_steps or max(each.job.stated_steps, int(done.get(index, 0.0)) + 1)
        for index, each in enumerate(history)
    )


def _as_it_was(state: WorldState, history: tuple[Arrival, ...], ends: tuple[int, ...]) -> Future:
    """Return what happened after `state`, where the jobs of the history end at these steps."""
    later = zip(history[state.jobs_seen :], ends[state.jobs_seen :], strict=True)
    return Future(
        ends_at_step=tuple(ends[index] for index in state.active.indices),
        arrivals=tuple(replace(arrival.job, ends_at_step=end) for arrival, end in later),
    )
