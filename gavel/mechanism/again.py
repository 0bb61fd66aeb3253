"""A round planned again from what is kept with it: the same leases, or the round is not what its record says."""

from collections.abc import Sequence

import numpy as np

from gavel.mechanism.planner import Ledger, RoundView, plan_round
from gavel.types import Job, JobSpec, JobState, Lease, RoundInputs, RoundPlan, RoundRecord


def inputs_of(view: RoundView, kept: Sequence[Lease], policy: str) -> RoundInputs:
    """What has to be kept of a view beside problem, allocation and ledger; `kept` leases go before the plan."""
    kinds = list(dict.fromkeys(job.spec.kind for job in view.jobs))
    place = {kind: index for index, kind in enumerate(kinds)}
    return RoundInputs(
        policy=policy,
        cluster=view.cluster,
        parent=view.parent,
        kept=tuple(kept),
        kinds=tuple(kinds),
        kind_of_job=np.array([place[job.spec.kind] for job in view.jobs], dtype=np.int64),
        token=np.array([job.token for job in view.jobs], dtype=np.int64),
        is_leased=np.array([job.state is JobState.LEASED for job in view.jobs], dtype=np.int64),
        to_profile=tuple(view.to_profile),
        profiling_workers_fraction=view.profiling_workers_fraction,
        planner=view.planner,
        is_new_allocation=view.is_new_allocation,
        switch_cost_s=view.switch_cost_s,
        minimum_run_s=view.minimum_run_s,
        started_at_s=dict(view.started_at_s) if view.minimum_run_s > 0 else {},
    )


def planned_again(record: RoundRecord, owed_rounds: Ledger) -> RoundPlan | None:
    """The round's plan, worked out anew from its stored allocation; None if its inputs were not kept.

    `owed_rounds` are those of the record before.
    """
    inputs, plan = record.inputs, record.plan
    if inputs is None:
        return None
    view = RoundView(
        jobs=_jobs(record, inputs),
        cluster=inputs.cluster,
        problem=record.problem,
        allocation=record.allocation,
        owed_rounds=owed_rounds,
        parent=inputs.parent,
        starts_at_s=plan.starts_at_s,
        duration_s=plan.duration_s,
        to_profile=inputs.to_profile,
        profiling_workers_fraction=inputs.profiling_workers_fraction,
        planner=inputs.planner,
        is_new_allocation=inputs.is_new_allocation,
        switch_cost_s=inputs.switch_cost_s,
        minimum_run_s=inputs.minimum_run_s,
        started_at_s=inputs.started_at_s,
    )
    again, _ = plan_round(view)
    return RoundPlan(
        round_index=again.round_index,
        parent_round_index=again.parent_round_index,
        starts_at_s=again.starts_at_s,
        duration_s=again.duration_s,
        leases=(*inputs.kept, *again.leases),
        policy=again.policy,
        allocation_digest=again.allocation_digest,
    )


def _jobs(record: RoundRecord, inputs: RoundInputs) -> list[Job]:
    """The jobs as far as planning looks at them."""
    problem = record.problem
    rows = zip(
        problem.job_ids,
        inputs.kind_of_job.tolist(),
        inputs.token.tolist(),
        inputs.is_leased.tolist(),
        problem.scale_factor.tolist(),
        problem.users,
        strict=True,
    )
    return [
        Job(
            id=job_id,
            spec=JobSpec(
                kind=inputs.kinds[kind], user=user, tier="", argv=(), total_steps=1, scale_factor=scale_factor
            ),
            state=JobState.LEASED if is_leased else JobState.QUEUED,
            token=token,
        )
        for job_id, kind, token, is_leased, scale_factor, user in rows
    ]


def differences(stored: RoundPlan, again: RoundPlan) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """(leases that only the stored round has, leases that only the other has).

    Leases given in the middle of the round (gavel/mechanism/backfill.py) were never part of its decision.
    """
    ours = {_what(lease): lease for lease in stored.leases if lease.starts_at_s is None}
    theirs = {_what(lease): lease for lease in again.leases}
    missing = tuple(lease for what, lease in ours.items() if what not in theirs)
    return missing, tuple(lease for what, lease in theirs.items() if what not in ours)


def _what(lease: Lease) -> tuple[object, ...]:
    return lease.job_id, lease.token, lease.combination, lease.accelerator_type, lease.worker_ids, lease.is_profiling
