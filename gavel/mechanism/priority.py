"""Who goes first: rounds owed by the allocation, minus rounds planned, per job and accelerator type.

Gavel (OSDI '20, section 5) divides fractions by the share received; the difference kept here orders jobs the same way
and, unlike a ratio, stays bounded and comparable over types.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gavel.types import AcceleratorType, Allocation, JobId

Owed = Mapping[tuple[JobId, AcceleratorType], float]
OWED_ROUNDS_MAX = 3.0  # older debts and credits are forgotten: the allocation has changed since


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's claim to one round on an accelerator type."""

    job_id: JobId
    accelerator_type: AcceleratorType
    owed_rounds: float


def accrue(owed: Owed, allocation: Allocation, live: Iterable[JobId]) -> dict[tuple[JobId, AcceleratorType], float]:
    """What is owed once the coming round's fractions are added; jobs that are gone drop out."""
    promised: dict[tuple[JobId, AcceleratorType], float] = {}
    for members, fractions in zip(allocation.combinations, allocation.time_fraction, strict=True):
        for accelerator_type, fraction in zip(allocation.accelerator_types, fractions, strict=True):
            for job_id in members:
                key = (job_id, accelerator_type)
                promised[key] = promised.get(key, 0.0) + float(fraction)
    alive = set(live)
    keys = {key for key in (*owed, *promised) if key[0] in alive}
    return {key: _bounded(owed.get(key, 0.0) + promised.get(key, 0.0)) for key in keys}


def claims(owed: Owed, kept: Mapping[JobId, AcceleratorType]) -> list[Claim]:
    """Positive claims, largest first; among equals a gang that can stay where it is, then the earlier job."""
    positive = [Claim(job_id, name, rounds) for (job_id, name), rounds in owed.items() if rounds > 1e-6]
    return sorted(
        positive,
        key=lambda claim: (
            -round(claim.owed_rounds, 2),
            kept.get(claim.job_id) != claim.accelerator_type,
            claim.job_id,
            claim.accelerator_type,
        ),
    )


def _bounded(rounds: float) -> float:
    return max(-OWED_ROUNDS_MAX, min(OWED_ROUNDS_MAX, rounds))
