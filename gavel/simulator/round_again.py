"""Decides a stored round again, allocation and leases, and compares the result with its record."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gavel.config import Settings
from gavel.errors import NotFound
from gavel.mechanism.planning.caps import capped
from gavel.mechanism.planning.replanning import differences, planned_again
from gavel.policies.inline import InlineRunner
from gavel.policies.registry import load
from gavel.types import AcceleratorType, JobId, Lease, RoundRecord

SAME = 1e-6  # time fractions closer than this are the same decision
SOLVED = "solved"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A stored round, and the planner's ledger of the previous one (None: no longer kept).

    `policy`: the configured policy, for rounds that were stored without their own policy's parameters.
    """

    record: RoundRecord
    lag_rounds: Mapping[tuple[JobId, AcceleratorType], float] | None
    policy: str
    policy_dir: Path | None
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a round that was decided again differs from its record.

    `largest_difference`: of time fractions; +inf: other jobs or types; None: the round had no solve of its own.
    `missing` leases are in the stored round only, `extra` ones only in the round decided again. `note` says what could
    not be compared.
    """

    round_index: int
    policy: str
    solver_outcome: str
    largest_difference: float | None
    jobs: int
    leases: int
    missing: tuple[Lease, ...] = ()
    extra: tuple[Lease, ...] = ()
    note: str = ""

    @property
    def is_same(self) -> bool:
        """Return True if all that could be compared is the same."""
        return (self.largest_difference or 0.0) <= SAME and not self.missing and not self.extra


def stored_round(read: Callable[[int], RoundRecord], index: int, settings: Settings) -> Stored:
    """Return the round as `read` gives it, with the ledger of the previous round. Raise NotFound if it is not kept."""
    record = read(index)
    lag_rounds: Mapping[tuple[JobId, AcceleratorType], float] | None = None
    if record.inputs is None or record.inputs.parent is None:
        lag_rounds = {}
    else:
        with suppress(NotFound):
            lag_rounds = read(index - 1).lag_rounds
    return Stored(
        record=record,
        lag_rounds=lag_rounds,
        policy=settings.policy,
        policy_dir=settings.policy_dir,
        time_limit_s=settings.solve_time_limit_s,
    )


def decided_again(stored: Stored) -> Verdict:
    """Return how the round decided again differs. Raise SolveFailed or InvalidRequest as the policy does."""
    record = stored.record
    policy = record.inputs.policy if record.inputs else _policy(stored)
    again = None if stored.lag_rounds is None else planned_again(record, stored.lag_rounds)
    missing, extra = differences(record.plan, again) if again is not None else ((), ())
    return Verdict(
        round_index=record.plan.round_index,
        policy=policy,
        solver_outcome=record.solver_outcome,
        largest_difference=_largest_difference(stored, policy) if record.solver_outcome == SOLVED else None,
        jobs=len(record.problem.job_ids),
        leases=len(record.plan.leases),
        missing=missing,
        extra=extra,
        note=_note(stored),
    )


def _policy(stored: Stored) -> str:
    """Return the configured policy if its name is that of the round's policy, else the name alone."""
    name = stored.record.allocation.policy
    return stored.policy if stored.policy.partition("?")[0] == name else name


def _largest_difference(stored: Stored, policy: str) -> float:
    record, runner = stored.record, InlineRunner(lambda name: load(name, stored.policy_dir))
    kept = record.allocation
    again = capped(runner.allocate(policy, record.problem, stored.time_limit_s), record.problem)
    if again.combinations != kept.combinations or again.accelerator_types != kept.accelerator_types:
        return float("inf")
    return float(np.abs(again.time_fraction - kept.time_fraction).max(initial=0.0))


def _note(stored: Stored) -> str:
    notes = []
    if stored.record.solver_outcome != SOLVED:
        notes.append(
            f"the round has no solve of its own ({stored.record.solver_outcome}): only its leases are compared"
        )
    if stored.record.inputs is None:
        notes.append("its leases are not compared: the planner's inputs were not stored for this round")
    elif stored.lag_rounds is None:
        notes.append("its leases are not compared: the round before it is no longer kept")
    return "; ".join(notes)
