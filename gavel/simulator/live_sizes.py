"""The sizes and execution plans of live jobs in a round that would begin now, and the speeds that later ones need."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.jobs.sizes import under_plan, variants_of
from gavel.mechanism.planning.configurations import SizeInputs
from gavel.mechanism.planning.problem import as_known
from gavel.ports import ThroughputEstimator
from gavel.types import AcceleratorType, Cluster, InfeasibleType, Job, JobId, JobState, Lease, RoundRecord, plain_type


def size_inputs(
    jobs: Mapping[JobId, Job],
    *,
    cluster: Cluster,
    estimator: ThroughputEstimator,
    infeasible: Sequence[InfeasibleType],
    last: RoundRecord | None,
    round_duration_s: float,
    now_s: float,
) -> SizeInputs:
    """Return what the sizes of a round that begins now are chosen from; `last`: the round in force."""
    held = {lease.job_id: lease for lease in (last.plan.leases if last else ()) if _runs(jobs.get(lease.job_id), lease)}
    return SizeInputs(
        feasibility=Feasibility(cluster),
        matrix=estimator.matrix,
        marks=infeasible,
        of_own_kind=lambda job: as_known(job, estimator),
        held={job_id: (lease.accelerator_type, len(lease.worker_ids)) for job_id, lease in held.items()},
        plan_held={job_id: lease.plan for job_id, lease in held.items()},
        staying=(),
        restart_s=last.switch_cost_s if last else {},
        round_duration_s=round_duration_s,
        now_s=now_s,
    )


def _runs(job: Job | None, lease: Lease) -> bool:
    return job is not None and job.state is JobState.LEASED and job.generation == lease.generation


def of_own_kinds(job: Job, of_own_kind: Callable[[Job], Job]) -> Job:
    """Return the job with the kinds whose rates apply to it, of each of its plans as well."""
    plans = tuple([replace(each, kind=of_own_kind(under_plan(job, each.name)).spec.kind) for each in job.spec.plans])
    own = of_own_kind(job)
    return replace(own, spec=replace(own.spec, plans=plans))


def throughputs(jobs: Sequence[Job], inputs: SizeInputs) -> dict[tuple[str, int, AcceleratorType], float]:
    """Return the steps/s of each kind in each size of the jobs with a choice, by plain accelerator type.

    Types where the kind is known not to fit in that size are left out.
    """
    types = inputs.feasibility.types
    seen = [inputs.of_own_kind(each) for each in ruled_out((v for job in jobs for v in variants_of(job)), inputs.marks)]
    specs = [job.spec for job in seen]
    rates = np.where(inputs.feasibility.mask(specs), inputs.matrix(specs, types).steps_per_s, 0.0)
    return {
        (spec.kind, spec.scale_factor, plain_type(name)): rate
        for spec, of_types in zip(specs, rates.tolist(), strict=True)
        for name, rate in zip(types, of_types, strict=True)
        if rate > 0
    }
