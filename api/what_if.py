"""The live state as a what-if takes it, and what it answers as it travels."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import TypeVar

from api.errors import problem
from api.schemas.explain import EffectsView, JobEffect, TierEffect
from api.services import Services
from gavel.errors import SolveFailed
from gavel.simulator.asking import ask
from gavel.simulator.what_if import Change, Effects, JobOutcome, Live, Outcome, Question, effects

Q = TypeVar("Q")
A = TypeVar("A")
AT_ONCE = 2  # processes that answer such questions
JOBS_MAX = 200
_slots = threading.BoundedSemaphore(AT_ONCE)


def ask_in_a_process(services: Services, function: Callable[[Q], A], question: Q) -> A:
    """The answer of a process with this service's limits; 503 problems when it breaks them or others are at work."""
    settings = services.settings
    with _slot():
        try:
            return ask(
                function,
                question,
                time_limit_s=settings.what_if_time_limit_s,
                memory_limit_bytes=settings.solve_memory_limit_bytes,
            )
        except SolveFailed as error:
            raise problem(503, f"there is no answer: {error}") from error


@contextmanager
def _slot() -> Iterator[None]:
    if not _slots.acquire(blocking=False):
        raise problem(503, f"{AT_ONCE} such questions are being worked out; ask again in a moment")
    try:
        yield
    finally:
        _slots.release()


def tried(services: Services, change: Change, *, is_replayed: bool) -> Effects:
    """The live state without and with the change, worked out in a process; a fifth of its time for each replay."""
    replay_cpu_s = services.settings.what_if_time_limit_s / 5 if is_replayed else 0.0
    question = Question(live=live(services), change=change, replay_cpu_s=replay_cpu_s)
    return ask_in_a_process(services, effects, question)


def live(services: Services) -> Live:
    """What the scheduler would decide on now."""
    known, store = services.store.snapshot(), services.store
    return Live(
        jobs=tuple(known.jobs.values()),
        tiers=known.tiers,
        cluster=store.cluster(),
        nodes=known.nodes,
        usage=known.usage,
        throughputs=store.throughputs(),
        policy=known.policy or services.settings.policy,
        settings=services.settings,
        last=known.rounds[-1] if known.rounds else None,
        now_s=services.clock.now_s(),
    )


# --- as it travels ----------------------------------------------------------------------------------------------


def effects_view(found: Effects, may_see_user: Callable[[str], bool], now_s: float) -> EffectsView:
    """Every tier; of the jobs that the caller may see, those that gain or lose most."""
    before, after = found.before, found.after
    seen = [each for each in {**before.jobs, **after.jobs}.values() if may_see_user(each.user)]
    rows = [_job_effect(before.jobs.get(each.job_id), after.jobs.get(each.job_id)) for each in seen]
    rows.sort(key=_gain, reverse=True)
    both = [row for row in rows if row.finish_at_s_before is not None and row.finish_at_s_after is not None]
    return EffectsView(
        policy_before=before.policy,
        policy_after=after.policy,
        capacity_before=dict(before.capacity),
        capacity_after=dict(after.capacity),
        tiers=[_tier_effect(name, before, after) for name in sorted(before.workers.keys() | after.workers.keys())],
        jobs=rows[:JOBS_MAX],
        jobs_total=len(rows),
        mean_left_s_before=fmean((row.finish_at_s_before or 0.0) - now_s for row in both) if both else None,
        mean_left_s_after=fmean((row.finish_at_s_after or 0.0) - now_s for row in both) if both else None,
    )


def _gain(row: JobEffect) -> float:
    """By how much the job's rate changes, relative to the larger one."""
    before, after = row.steps_per_s_before or 0.0, row.steps_per_s_after or 0.0
    return abs(after - before) / max(before, after, 1e-300)


def _tier_effect(name: str, before: Outcome, after: Outcome) -> TierEffect:
    first, last = before.workers.get(name), after.workers.get(name)
    return TierEffect(
        tier=name,
        share_before=_share(first, before),
        share_after=_share(last, after),
        workers_before=None if first is None else dict(first),
        workers_after=None if last is None else dict(last),
    )


def _share(workers: Mapping[str, float] | None, outcome: Outcome) -> float | None:
    return None if workers is None else sum(workers.values()) / max(1, sum(outcome.capacity.values()))


def _job_effect(before: JobOutcome | None, after: JobOutcome | None) -> JobEffect:
    known = after or before
    assert known is not None
    return JobEffect(
        job_id=known.job_id,
        kind=known.kind,
        user=known.user,
        tier=known.tier,
        target_before=None if before is None else dict(before.target),
        target_after=None if after is None else dict(after.target),
        steps_per_s_before=None if before is None else before.steps_per_s,
        steps_per_s_after=None if after is None else after.steps_per_s,
        finish_at_s_before=None if before is None else before.finish_at_s,
        finish_at_s_after=None if after is None else after.finish_at_s,
        is_replayed=all(each is None or each.is_replayed for each in (before, after)),
    )
