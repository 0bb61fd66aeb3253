"""The sizes and execution plans of live jobs in a round that would begin now, and the speeds that later ones need."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.jobs.sizes import under_plan, variants_of
from gavel.mechanism.planning.configurations import SizeInputs
from gavel.mechanism.planning.problem import as_known
from gavel.simulator.live import Live, Undecided
from gavel.types import AcceleratorType, FloatArray, Job, JobId, JobSpec, JobState, Lease, plain_type


def size_inputs(live: Live, now: Undecided) -> SizeInputs:
    """Return what the sizes of a round that begins now are chosen from."""
    jobs, last = {job.id: job for job in live.jobs}, live.last
    held = {lease.job_id: lease for lease in (last.plan.leases if last else ()) if _runs(jobs.get(lease.job_id), lease)}
    return SizeInputs(
        feasibility=Feasibility(now.cluster),
        matrix=now.estimator.matrix,
        marks=live.infeasible,
        of_own_kind=lambda job: as_known(job, now.estimator),
        held={job_id: (lease.accelerator_type, len(lease.worker_ids)) for job_id, lease in held.items()},
        plan_held={job_id: lease.plan for job_id, lease in held.items()},
        staying=(),
        restart_s=last.switch_cost_s if last else {},
        round_duration_s=live.in_force.round_duration_s,
        now_s=live.now_s,
    )


def _runs(job: Job | None, lease: Lease) -> bool:
    return job is not None and job.state is JobState.LEASED and job.generation == lease.generation


def as_submitted(live: Live, now: Undecided) -> list[Job]:
    """Return the jobs, those with a choice without what applies to their present size alone."""
    submitted = {job.id: job for job in live.jobs}
    return [submitted[job.id] if job.spec.has_choice else job for job in now.jobs]


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
    specs, rates = _speeds([variant for job in jobs for variant in variants_of(job)], inputs)
    return {
        (spec.kind, spec.scale_factor, plain_type(name)): rate
        for spec, of_types in zip(specs, rates.tolist(), strict=True)
        for name, rate in zip(types, of_types, strict=True)
        if rate > 0
    }


def fastest_rates(jobs: Sequence[Job], inputs: SizeInputs) -> dict[JobId, float]:
    """Return the steps/s of each job on its fastest type, in the best of its sizes and plans; 0: nowhere."""
    fastest = dict.fromkeys((job.id for job in jobs), 0.0)
    variants = [variant for job in jobs for variant in variants_of(job)]
    rates = _speeds(variants, inputs)[1].max(axis=1, initial=0.0)
    for variant, rate in zip(variants, rates.tolist(), strict=True):
        fastest[variant.id] = max(fastest[variant.id], rate)
    return fastest


def _speeds(variants: Sequence[Job], inputs: SizeInputs) -> tuple[list[JobSpec], FloatArray]:
    """The specifications of v variants under their own kinds, and their steps/s on the m types, (v, m)."""
    specs = [inputs.of_own_kind(each).spec for each in ruled_out(variants, inputs.marks)]
    types = inputs.feasibility.types
    return specs, np.where(inputs.feasibility.mask(specs), inputs.matrix(specs, types).steps_per_s, 0.0)
