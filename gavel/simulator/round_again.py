"""A stored round decided again, allocation and leases, and held against its record."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gavel.config import Settings
from gavel.errors import NotFound
from gavel.mechanism.again import differences, planned_again
from gavel.mechanism.caps import capped
from gavel.policies.inline import InlineRunner
from gavel.policies.registry import load
from gavel.types import AcceleratorType, JobId, Lease, RoundRecord

SAME = 1e-6  # time fractions closer than this are the same decision
SOLVED = "solved"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A round, and the planner's ledger of the round before (None: no longer kept). `policy` is for rounds of old."""

    record: RoundRecord
    owed_rounds: Mapping[tuple[JobId, AcceleratorType], float] | None
    policy: str
    policy_path: Path | None
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`largest_difference` of time fractions, +inf for other jobs or types, None: the round had no solve of its own.

    `missing` leases are in the stored round only, `extra` ones only in the round decided again; `note` says what could
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
        """True if nothing that could be compared came out otherwise."""
        return (self.largest_difference or 0.0) <= SAME and not self.missing and not self.extra


def stored_round(read: Callable[[int], RoundRecord], index: int, settings: Settings) -> Stored:
    """The round as `read` gives it, with what it takes of the one before. Raises NotFound for one that is not kept."""
    record = read(index)
    owed_rounds: Mapping[tuple[JobId, AcceleratorType], float] | None = None
    if record.inputs is None or record.inputs.parent is None:
        owed_rounds = {}
    else:
        with suppress(NotFound):
            owed_rounds = read(index - 1).owed_rounds
    return Stored(
        record=record,
        owed_rounds=owed_rounds,
        policy=settings.policy,
        policy_path=settings.policy_path,
        time_limit_s=settings.solve_time_limit_s,
    )


def decided_again(stored: Stored) -> Verdict:
    """Raises SolveFailed or InvalidRequest as the policy does."""
    record = stored.record
    policy = record.inputs.policy if record.inputs else _policy(stored)
    again = None if stored.owed_rounds is None else planned_again(record, stored.owed_rounds)
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
    """The configured policy if the round's is the same but for parameters, else the round's own name."""
    name = stored.record.allocation.policy
    return stored.policy if stored.policy.partition("?")[0] == name else name


def _largest_difference(stored: Stored, policy: str) -> float:
    record, runner = stored.record, InlineRunner(lambda name: load(name, stored.policy_path))
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
        notes.append("its leases are not compared: what they were chosen from was not kept then")
    elif stored.owed_rounds is None:
        notes.append("its leases are not compared: the round before it is no longer kept")
    return "; ".join(notes)
