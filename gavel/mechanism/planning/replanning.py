"""Plans a stored round again from its stored inputs, and compares the leases."""

from collections.abc import Sequence
from dataclasses import replace

from gavel.mechanism.planning.planner import Ledger, plan_round
from gavel.types import Lease, PlanInputs, RoundPlan, RoundRecord


def planned_again(record: RoundRecord, lag_rounds: Ledger) -> RoundPlan | None:
    """Return the round's plan, worked out anew from its stored allocation; None if its inputs were not kept.

    `lag_rounds` are those of the record before.
    """
    inputs = record.inputs
    if inputs is None:
        return None
    plan, _ = plan_round(inputs, problem=record.problem, allocation=record.allocation, lag_rounds=lag_rounds)
    return with_guests(with_kept(plan, inputs), inputs.guests)


def with_kept(plan: RoundPlan, inputs: PlanInputs) -> RoundPlan:
    """Return the plan with the leases that went on before it was made."""
    return replace(plan, leases=(*inputs.kept, *plan.leases)) if inputs.kept else plan


def with_guests(plan: RoundPlan, guests: Sequence[Lease]) -> RoundPlan:
    """Return the plan with the leases of guests, each of which is a pair with the session whose workers it has."""
    if not guests:
        return plan
    pair_of = {job_id: guest.combination for guest in guests for job_id in guest.combination}
    hosts = (replace(each, combination=pair_of.get(each.job_id, each.combination)) for each in plan.leases)
    return replace(plan, leases=(*hosts, *guests))


def differences(stored: RoundPlan, again: RoundPlan) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Return the leases that only the stored round has, and those that only the other has.

    Leases given in the middle of the round (gavel/mechanism/planning/backfill.py) were never part of its decision.
    """
    ours = {_what(lease): lease for lease in stored.leases if lease.starts_at_s is None}
    theirs = {_what(lease): lease for lease in again.leases}
    missing = tuple(lease for what, lease in ours.items() if what not in theirs)
    return missing, tuple(lease for what, lease in theirs.items() if what not in ours)


def _what(lease: Lease) -> tuple[object, ...]:
    return (
        lease.job_id,
        lease.generation,
        lease.combination,
        lease.accelerator_type,
        lease.worker_ids,
        lease.is_profiling,
        lease.plan,
    )
