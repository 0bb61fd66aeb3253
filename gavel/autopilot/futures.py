"""What may happen from now on: the true lengths of the present jobs, and the jobs that will arrive.

Drawn once from a seed, and the same for all compositions that are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.autopilot.lengths import Class, Length, LengthModel, learned
from gavel.simulator.active import Active, ActiveState
from gavel.simulator.outcome import NodeOutage
from gavel.types import FloatArray
from workloads.traces.job import TraceJob

BLOCK = 8  # jobs that are drawn together, with the times between them
HISTORY = 200  # the last arrivals are those that future ones are drawn from
ARRIVALS_MAX = 400  # in one future, so that a decision is in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job that has arrived: what it states, its seconds per step alone on its fastest type, and the steps it made.

    `made_steps` is None until it has ended.
    """

    job: TraceJob
    s_per_step: float
    made_steps: int | None = None

    @property
    def of(self) -> Class:
        """Return the class that its length is learned in."""
        return self.job.spec.kind, self.job.spec.user

    @property
    def stated_s(self) -> float | None:
        """Return the length that its submission states, seconds."""
        steps = self.job.spec.total_steps
        return None if steps is None else steps * self.s_per_step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Future:
    """What happens. `ends_at_step`: of each active job, in their order; `arrivals`: later jobs in order, with their
    true ends; `outages`: of nodes, with those that are away now.
    """

    ends_at_step: tuple[int, ...]
    arrivals: tuple[TraceJob, ...]
    outages: tuple[NodeOutage, ...] = ()


def length_model(history: Sequence[Arrival]) -> LengthModel:
    """Return what the jobs that have ended say of the lengths of others."""
    return learned(
        Length(of=each.of, stated_s=each.stated_s, actual_s=each.made_steps * each.s_per_step)
        for each in history
        if each.made_steps
    )


def drawn(
    state: ActiveState,
    history: Sequence[Arrival],
    *,
    now_s: float,
    until_s: float,
    random: np.random.Generator,
) -> Future:
    """Return one future of the jobs of `state`, with arrivals until `until_s`."""
    model = length_model(history)
    return Future(
        ends_at_step=tuple(_ends(state, model, random)),
        arrivals=tuple(_arrivals(history, model, now_s, until_s, random)),
    )


def _ends(state: ActiveState, model: LengthModel, random: np.random.Generator) -> list[int]:
    active = Active.of(state)
    uniform = random.uniform(size=len(state.jobs))
    s_per_step = 1.0 / active.fastest_rate
    return [
        _end(Arrival(job=job, s_per_step=per_step), model, done, chance)
        for job, per_step, done, chance in zip(
            state.jobs, s_per_step.tolist(), active.steps_done.tolist(), uniform.tolist(), strict=True
        )
    ]


def _end(of: Arrival, model: LengthModel, done: float, uniform: float) -> int:
    length_s = model.draw_s(of.of, of.stated_s, done * of.s_per_step, uniform)
    return max(round(length_s / of.s_per_step), int(done) + 1)


def _arrivals(
    history: Sequence[Arrival], model: LengthModel, now_s: float, until_s: float, random: np.random.Generator
) -> list[TraceJob]:
    """Return later jobs: blocks of the last ones, drawn with replacement, with the times between them."""
    last = list(history[-HISTORY:])
    if len(last) < 2:
        return []
    submitted_s: FloatArray = np.array([each.job.submitted_at_s for each in last])
    gaps_s = np.diff(submitted_s)
    if gaps_s.sum() <= 0:  # all came at once: nothing says that others will come
        return []
    arrivals: list[TraceJob] = []
    at_s = now_s
    while len(arrivals) < ARRIVALS_MAX:
        first = int(random.integers(len(gaps_s)))
        for place in range(first, min(first + BLOCK, len(gaps_s))):
            at_s += float(gaps_s[place])
            if at_s > until_s or len(arrivals) == ARRIVALS_MAX:
                return arrivals
            arrivals.append(_arriving(last[place + 1], model, at_s, len(arrivals), float(random.uniform())))
    return arrivals


def _arriving(like: Arrival, model: LengthModel, at_s: float, number: int, uniform: float) -> TraceJob:
    """Return a job like this one that arrives at `at_s`; as long as it, if it has ended."""
    steps = like.made_steps or _end(like, model, 0.0, uniform)
    deadline_s = like.job.spec.deadline_at_s
    moved = None if deadline_s is None else deadline_s - like.job.submitted_at_s + at_s
    spec = replace(like.job.spec, name=f"expected-{number}", deadline_at_s=moved, after=())
    return replace(like.job, submitted_at_s=at_s, spec=spec, program_steps=steps, ends_at_step=steps)
