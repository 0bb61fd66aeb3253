"""A decision about the live service: its state as a question, what the epoch before has taught, and the answer.

Times of a question count from the instant at which it was asked. A job is known by its id, which is the name that it
has in simulations. Jobs that nobody knows the length of, or that can run nowhere, are in no simulation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gavel.autopilot import goals
from gavel.autopilot.decision import Decision, Question, decide
from gavel.autopilot.features import NAMES, features
from gavel.autopilot.futures import Arrival
from gavel.autopilot.learning import Epoch, Experience
from gavel.autopilot.lesson import Past, lesson
from gavel.autopilot.portfolio import Portfolio, portfolio
from gavel.autopilot.prior import ENDED_LEAST
from gavel.autopilot.stored import Memory, pack, pack_memory, unpack, unpack_memory
from gavel.config import Settings
from gavel.errors import SolveFailed
from gavel.mechanism.planning.configurations import SizeInputs
from gavel.policies.inline import InlineRunner
from gavel.policies.registry import load
from gavel.simulator.active import Active
from gavel.simulator.live import Live, Undecided, undecided
from gavel.simulator.live_sizes import as_submitted, fastest_rates, of_own_kinds, size_inputs, throughputs
from gavel.simulator.live_state import world_state
from gavel.simulator.outcome import Scenario
from gavel.simulator.report import JobResult, cost_usd, row_of
from gavel.simulator.world_state import WorldState
from gavel.types import Job, JobId, plain_type
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, AutopilotSetting
from workloads.traces.job import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frozen:
    """The service at the instant of a decision. `ended`: the jobs that ended last, by their submission.

    `earlier`: decisions, newest first, all those of the last hour among them; `question` and `memory` are those of the
    newest one, empty if there is none.
    """

    live: Live
    ended: tuple[Job, ...]
    setting: AutopilotSetting
    number: int
    earlier: tuple[AutopilotDecision, ...] = ()
    question: bytes = b""
    memory: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A decision as it is stored, with its question and what was learned until it."""

    decision: AutopilotDecision
    question: bytes
    memory: bytes


def think(frozen: Frozen) -> Thought:
    """Return the decision about the frozen state. Raises SolveFailed where there is nothing to simulate."""
    live, now = frozen.live, undecided(frozen.live)
    runner = InlineRunner(partial(load, folder=live.settings.policy_dir))
    moment = _Moment(frozen, now)
    if not moment.rows:
        raise SolveFailed("no job can be simulated: nobody knows how long they are, or how fast")
    memory = unpack_memory(frozen.memory) if frozen.memory else None
    experience, epoch = memory.experience if memory else Experience(), None
    choices = portfolio(frozen.setting, live, now.problem, runner, leaves_out_own=_has_hung(frozen.earlier))
    if past := _past(frozen, moment, choices, memory):
        epoch = lesson(past, runner)
        experience = experience.after(epoch, past.question.candidates[0])
    stored = pack(moment.question(choices, experience))
    question = unpack(stored)  # so that what is decided on is what is stored
    decision = decide(question, runner)
    answer = _answer(frozen, question, decision, epoch, choices)
    return Thought(
        decision=answer,
        question=stored,
        memory=pack_memory(Memory(experience=experience, yardstick=decision.yardstick)),
    )


def verified(asked: tuple[AutopilotDecision, bytes, Settings]) -> tuple[str, ...]:
    """Return the names of the fields that differ if a stored decision is made again from its question; () if none."""
    decision, stored, service = asked
    question = unpack(stored)
    again = decide(question, InlineRunner(partial(load, folder=service.policy_dir)))
    same = {
        "inputs_digest": again.inputs_digest == decision.inputs_digest,
        "chosen": again.chosen == decision.chosen,
        "reason": decision.reason.startswith(again.reason),
        "scores": again.scores == decision.scores,
    }
    return tuple(name for name, is_same in same.items() if not is_same)


def _has_hung(earlier: Sequence[AutopilotDecision]) -> bool:
    """Return True if the newest decision failed: policies of the operator's own are tried no more until one is made."""
    return bool(earlier) and bool(earlier[0].failure)


# --- the state as a question ------------------------------------------------------------------------------------


class _Moment:
    """The jobs and the cluster now. `rows` are the places of the jobs that are simulated, in the problem."""

    def __init__(self, frozen: Frozen, now: Undecided) -> None:
        self._frozen, self._now = frozen, now
        sizes, jobs = size_inputs(frozen.live, now), as_submitted(frozen.live, now)
        self._jobs = [of_own_kinds(job, sizes.of_own_kind) for job in jobs]
        rates = now.problem.throughput_steps_per_s[:, 0].max(axis=1, initial=0.0)
        self.rows = [row for row, job in enumerate(now.jobs) if rates[row] > 0 and job.total_steps is not None]
        as_stated = replace(sizes, of_own_kind=lambda job: job)  # what ended is known by its kind alone
        self.ended = self._that_ran(frozen.ended, as_stated)
        choosing = [job for row in self.rows if (job := jobs[row]).spec.has_choice]
        ended = [job for job, _ in self.ended.values() if job.spec.has_choice]
        self._is_elastic = bool(choosing or ended)
        self._fastest = fastest_rates(choosing, sizes) | fastest_rates(ended, as_stated)
        self._by_size = throughputs(ended, as_stated) | throughputs(choosing, sizes)

    def _that_ran(self, jobs: Sequence[Job], inputs: SizeInputs) -> dict[JobId, tuple[Job, float]]:
        """Return the jobs that made steps, with their steps/s where they are the fastest, of all that they may use."""
        ran = [job for job in jobs if job.steps_done > 0 and job.spec.tier in self._frozen.live.tiers]
        rates = fastest_rates(ran, inputs)
        return {job.id: (job, rates[job.id]) for job in ran if rates[job.id] > 0}

    def state(self, origin_s: float, place: Mapping[JobId, int]) -> WorldState:
        """Return the state by the clock that began at `origin_s`, with the place of each job in a history."""
        live, now = self._frozen.live, self._now
        made = world_state(self._jobs, now.problem, self.rows, cluster=now.cluster, last=live.last, now_s=origin_s)
        jobs = tuple(replace(job, fastest_steps_per_s=self._fastest.get(job.spec.name)) for job in made.active.jobs)
        active = replace(made.active, jobs=jobs, indices=tuple(place[job.spec.name] for job in jobs))
        return replace(made, at_s=live.now_s - origin_s, active=active, jobs_seen=len(place))

    def history(self, origin_s: float, before: Sequence[Arrival] = ()) -> tuple[Arrival, ...]:
        """Return the arrivals `before` as they are by now, then all others by their submission."""
        there = {each.job.spec.name: each for each in (*self._ended(origin_s), *self._active(origin_s))}
        first = [there.pop(each.job.spec.name, each) for each in before]
        return (*first, *sorted(there.values(), key=lambda each: (each.job.submitted_at_s, each.job.spec.name)))

    def _ended(self, origin_s: float) -> Iterable[Arrival]:
        for job, rate in self.ended.values():
            of_history = replace(_of_history(job, origin_s), fastest_steps_per_s=self._fastest.get(job.id))
            yield Arrival(job=of_history, s_per_step=1 / rate, made_steps=job.steps_done)

    def _active(self, origin_s: float) -> Iterable[Arrival]:
        numbered = {self._now.jobs[row].id: place for place, row in enumerate(self.rows)}
        active = self.state(origin_s, numbered).active
        for job, rate in zip(active.jobs, Active.of(active).fastest_rate.tolist(), strict=True):
            yield Arrival(job=job, s_per_step=1 / rate)

    def question(self, choices: Portfolio, experience: Experience) -> Question:
        """Return what is decided on."""
        frozen, live = self._frozen, self._frozen.live
        history = self.history(live.now_s)
        switches = [each.at_s - live.now_s for each in frozen.earlier if each.is_followed]
        return Question(
            number=frozen.number,
            seed=0,
            goal=goals.read(frozen.setting.goal),
            candidates=choices.candidates,
            incumbent=choices.incumbent,
            state=self.state(live.now_s, places(history)),
            scenario=self.scenario(),
            history=history,
            epoch_s=frozen.setting.epoch_s,
            experience=experience,
            switched_at_s=tuple(sorted(switches)),
        )

    def scenario(self) -> Scenario:
        """Return what is simulated, with the rates of all kinds of jobs that are there or have ended."""
        live, now = self._frozen.live, self._now
        types = now.cluster.accelerator_types
        jobs = [*(job for job, _ in self.ended.values()), *(self._jobs[row] for row in self.rows)]
        kinds = {(job.spec.kind, job.spec.scale_factor): job.spec for job in jobs if not job.spec.has_choice}
        rates = {
            (kind, size, key): each.steps_per_s
            for (kind, size), spec in kinds.items()
            for name, each in zip(types, now.estimator.estimate(spec, types), strict=True)
            for key in (name, plain_type(name))
        }
        return Scenario(
            cluster=now.cluster,
            throughput=rates | self._by_size,
            is_elastic=self._is_elastic,
            settings=live.settings.model_copy(update={"space_sharing": False}),
            tiers=tuple(live.tiers.values()),
            switch_cost_s=live.last.switch_cost_s if live.last else {},
        )


def places(history: Sequence[Arrival]) -> dict[JobId, int]:
    """Return the place of each job in the history, by its id."""
    return {each.job.spec.name: place for place, each in enumerate(history)}


def _of_history(job: Job, origin_s: float) -> TraceJob:
    spec = replace(job.spec, name=job.id, deadline_at_s=None)
    return TraceJob(submitted_at_s=job.submitted_at_s - origin_s, spec=spec, program_steps=job.total_steps)


# --- the epoch before -------------------------------------------------------------------------------------------


def _past(frozen: Frozen, moment: _Moment, choices: Portfolio, memory: Memory | None) -> Past | None:
    """Return the epoch since the newest decision; None if something else than it chose was in force meanwhile."""
    if memory is None or not frozen.question or frozen.earlier[0].failure:
        return None
    before, question = frozen.earlier[0], unpack(frozen.question)
    in_force = before.chosen if before.is_followed else before.incumbent
    if in_force != choices.incumbent or in_force not in question.candidates:
        return None
    origin_s = before.at_s
    history = moment.history(origin_s, question.history)
    place = places(history)
    since = [pair for pair in moment.ended.values() if (pair[0].finished_at_s or 0.0) > origin_s]
    then, now = question.scenario, moment.scenario()
    prices = then.cluster.mean_price_usd_per_hour()
    rates = {**now.throughput, **then.throughput}  # of kinds that came since, too
    return Past(
        question=replace(
            question, scenario=replace(then, throughput=rates, is_elastic=then.is_elastic or now.is_elastic)
        ),
        in_force=in_force,
        yardstick=memory.yardstick,
        scores=before.scores,
        rows=[_row(job, rate, place[job.id], origin_s, prices) for job, rate in since],
        state=moment.state(origin_s, place),
        history=history,
    )


def _row(job: Job, rate: float, place: int, origin_s: float, prices: Mapping[str, float]) -> JobResult:
    """Return the line of a job that has ended, however it did."""
    ended_at_s = job.finished_at_s or origin_s
    return replace(
        row_of(job),
        id=str(place),
        jct_s=ended_at_s - job.submitted_at_s,
        submitted_at_s=job.submitted_at_s - origin_s,
        finished_at_s=ended_at_s - origin_s,
        fastest_s=job.steps_done / rate,
        cost_usd=cost_usd(job, prices),
    )


# --- the answer -------------------------------------------------------------------------------------------------


def _answer(
    frozen: Frozen, question: Question, decision: Decision, epoch: Epoch | None, choices: Portfolio
) -> AutopilotDecision:
    setting, ended = frozen.setting, sum(1 for each in question.history if each.made_steps)
    is_new, is_auto = decision.chosen != decision.incumbent, setting.mode is AutopilotMode.AUTO
    reason = decision.reason
    if is_auto and is_new and ended < ENDED_LEAST:
        reason += f"; it is advice only: {ended} jobs have ended, and the mode auto needs {ENDED_LEAST}"
    if choices.notes:
        reason += f"; left out: {', '.join(choices.notes)}"
    numbers = features(question.state.active, question.history, len(question.scenario.cluster.workers))
    return AutopilotDecision(
        number=frozen.number,
        at_s=frozen.live.now_s,
        mode=setting.mode,
        goal=decision.goal,
        seed=decision.seed,
        incumbent=decision.incumbent,
        chosen=decision.chosen,
        reason=reason,
        is_followed=is_auto and is_new and ended >= ENDED_LEAST,
        inputs_digest=decision.inputs_digest,
        scores=decision.scores,
        features=tuple(zip(NAMES[1:], numbers[1:].tolist(), strict=True)),
        replayed=tuple(epoch.replayed.items()) if epoch else (),
        actual=epoch.real if epoch else None,
        jobs=len(question.state.active.jobs),
        has_question=True,
    )
