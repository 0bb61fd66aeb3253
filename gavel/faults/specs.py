"""What a user submits for a program of the simulation."""

from dataclasses import replace

from gavel.faults.scenario import Program
from gavel.types import ExecutionPlan, JobSpec, in_plan
from gavel.types.elastic_kinds import elastic_kind
from gavel.types.execution_plans import plan_kind
from gavel.types.services import Check, ServiceSpec, Serving

USERS = ("ann", "ben")
GLOBAL_BATCH = 12  # samples of a step of an elastic job: each size up to four divides it
REPLICAS_MAX = 3
DRAIN_S = 4.0  # that a replica has for its requests


def spec_of(program: Program, job: int) -> JobSpec:
    """Return what a user submits for a program; what it states of its speed may be wrong."""
    claims = {} if program.claim is None else {name: rate * program.claim for name, rate in program.rates.items()}
    batch = GLOBAL_BATCH if program.sizes else 0
    spec = JobSpec(
        kind=elastic_kind(program.kind, batch),
        user=USERS[job % len(USERS)],
        tier=program.tier,
        argv=("simulated", str(job)),
        total_steps=program.steps or None,
        name=f"key-{job}",
        scale_factor=min(program.sizes, default=program.size),
        sizes=program.sizes,
        global_batch=batch,
        preemptible=program.preemptible,
        longest_s=program.longest_s,
        accelerator_memory_bytes=program.accelerator_memory_bytes,
        accelerator_share=program.accelerator_share,
        service=_service(program.replicas) if program.replicas else None,
        max_retries=program.retries,
        throughput_steps_per_s=claims,
    )
    return _with_plans(spec, program, batch) if program.plans else spec


def _with_plans(spec: JobSpec, program: Program, batch: int) -> JobSpec:
    plans = tuple(
        ExecutionPlan(name=name, kind=plan_kind(program.kind, name, batch), sizes=spec.possible_sizes)
        for name in program.plans
    )
    return in_plan(replace(spec, plans=plans), plans[0].name)


def _service(replicas: int) -> ServiceSpec:
    return ServiceSpec(
        replicas=replicas,
        replicas_min=0,
        replicas_max=max(replicas, REPLICAS_MAX),
        min_available=max(0, replicas - 1),
        serving=Serving(port=0, readiness=Check()),
        drain_s=DRAIN_S,
    )
