"""The live state as input of a what-if, and its outcome as an answer."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Annotated, TypeVar

from anyio import from_thread
from fastapi import Depends, Request

from api.access.user_share import UserShare
from api.http.errors import problem
from api.schemas.explain import EffectsView, JobEffect, LeaseDifference, TierEffect, VerificationView
from api.services import Services
from gavel.errors import SolveFailed
from gavel.simulator.asking import ask
from gavel.simulator.live import Live, live_of
from gavel.simulator.round_again import Verdict
from gavel.simulator.what_if import Change, Effects, JobOutcome, Outcome, Question, effects
from gavel.types import Identity

Q = TypeVar("Q")
A = TypeVar("A")
AT_ONCE = 2  # processes that answer such questions at a time
JOBS_MAX = 200
_slots = threading.BoundedSemaphore(AT_ONCE)
of_user = UserShare(1, "what-ifs, previews or verifications")


def _is_waiting(request: Request) -> Callable[[], bool]:
    return lambda: not from_thread.run(request.is_disconnected)


IsWaiting = Annotated[Callable[[], bool], Depends(_is_waiting)]
"""Whether the caller still waits for the answer; for the worker thread of a route."""


def ask_in_a_process(
    services: Services,
    caller: Identity,
    function: Callable[[Q], A],
    question: Q,
    is_waiting: IsWaiting,
    *,
    times: float = 1.0,
) -> A:
    """Return the answer of a process with this service's limits, which ends when the caller goes away.

    It may take so many `times` as long as a what-if.

    Raise a 503 problem when the process breaks them, or when all processes are busy; 429 when one works for the caller.
    """
    settings = services.settings
    with _slot(), of_user.held(caller):
        try:
            return ask(
                function,
                question,
                time_limit_s=times * settings.what_if_time_limit_s,
                memory_limit_bytes=settings.solve_memory_limit_bytes,
                is_wanted=is_waiting,
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


def tried(
    services: Services, caller: Identity, change: Change, is_waiting: IsWaiting, *, is_simulated: bool
) -> Effects:
    """Return the live state without and with the change, from a process. Each simulation gets a fifth of its time."""
    simulation_cpu_s = services.settings.what_if_time_limit_s / 5 if is_simulated else 0.0
    question = Question(live=live(services), change=change, simulation_cpu_s=simulation_cpu_s)
    return ask_in_a_process(services, caller, effects, question, is_waiting)


def live(services: Services) -> Live:
    """Return the state on which the scheduler would decide now."""
    return live_of(services.store, services.store.snapshot(), services.settings, services.clock.now_s())


# --- as it travels ----------------------------------------------------------------------------------------------


def effects_view(effects: Effects, may_see_user: Callable[[str], bool], now_s: float) -> EffectsView:
    """Return every tier, and of the jobs that the caller may see those that gain or lose most."""
    before, after = effects.before, effects.after
    seen = [each for each in {**before.jobs, **after.jobs}.values() if may_see_user(each.user)]
    rows = [_job_effect(before.jobs.get(each.job_id), after.jobs.get(each.job_id)) for each in seen]
    rows.sort(key=_gain, reverse=True)
    both = [
        row
        for row in rows
        if row.simulated_finish_at_s_before is not None and row.simulated_finish_at_s_after is not None
    ]
    return EffectsView(
        policy_before=before.policy,
        policy_after=after.policy,
        capacity_before=dict(before.capacity),
        capacity_after=dict(after.capacity),
        tiers=[_tier_effect(name, before, after) for name in sorted(before.workers.keys() | after.workers.keys())],
        jobs=rows[:JOBS_MAX],
        jobs_total=len(rows),
        simulated_mean_left_s_before=fmean((row.simulated_finish_at_s_before or 0.0) - now_s for row in both)
        if both
        else None,
        simulated_mean_left_s_after=fmean((row.simulated_finish_at_s_after or 0.0) - now_s for row in both)
        if both
        else None,
    )


def _gain(row: JobEffect) -> float:
    """Return the change of the job's rate, relative to the larger of both rates."""
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
    either = after or before
    assert either is not None
    return JobEffect(
        job_id=either.job_id,
        kind=either.kind,
        user=either.user,
        tier=either.tier,
        target_before=None if before is None else dict(before.target),
        target_after=None if after is None else dict(after.target),
        steps_per_s_before=None if before is None else before.steps_per_s,
        steps_per_s_after=None if after is None else after.steps_per_s,
        simulated_finish_at_s_before=None if before is None else before.finish_at_s,
        simulated_finish_at_s_after=None if after is None else after.finish_at_s,
        is_simulated=all(each is None or each.is_simulated for each in (before, after)),
    )


def verification_view(verdict: Verdict) -> VerificationView:
    """Return how a round that was decided again differs from its record."""
    is_known = verdict.largest_difference is not None and verdict.largest_difference != float("inf")
    note = verdict.note or (
        "" if verdict.largest_difference != float("inf") else "the allocation is for other jobs or types"
    )
    return VerificationView(
        round_index=verdict.round_index,
        policy=verdict.policy,
        same=verdict.is_same,
        solver_outcome=verdict.solver_outcome,
        largest_difference=verdict.largest_difference if is_known else None,
        leases=verdict.leases,
        differences=list(_differences(verdict)),
        note=note,
    )


def _differences(verdict: Verdict) -> Iterator[LeaseDifference]:
    for is_stored, leases in ((True, verdict.missing), (False, verdict.extra)):
        for lease in leases:
            yield LeaseDifference(
                job_id=lease.job_id,
                accelerator_type=lease.accelerator_type,
                worker_ids=list(lease.worker_ids),
                generation=lease.generation,
                is_stored=is_stored,
            )
