"""Submits a job again: its specification as it was, with the changes that were asked for."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from api.http.errors import invalid, problem
from api.rules import Rules
from api.schemas import JobResubmit, JobSubmit
from api.schemas.code import CodeOfJob
from api.services import Services
from api.submission.code import without_lost_diff
from api.submission.inference import stated_service
from api.submission.plans import stated_plans
from api.submission.regions import largest_by_type
from api.submission.specs import check_stored, spec_of
from gavel.errors import InvalidRequest
from gavel.types import Identity, Job, JobSpec, Scope
from gavel.types.elastic_kinds import rigid_kind
from gavel.types.environment import ARRAY_INDEX


def spec_again(job: Job, changes: JobResubmit, caller: Identity, services: Services, rules: Rules) -> JobSpec:
    """Return the specification of a job that is as `job` but for `changes`, and belongs to the same user.

    It is checked anew, as the cluster, tiers and stored code may have changed since. The jobs that the old one waited
    for, its array and its reservation are left out. Raise a 422 or 503 problem that says what to change.
    """
    if job.spec.replica is not None:
        service = job.spec.replica.service
        raise problem(422, f"job {job.id} is a replica, which its service makes; resubmit {service}, the service")
    body = _body(job.spec, changes, rules)
    body = body.model_copy(update={"code": without_lost_diff(body.code, services)})
    check_stored(body, caller, services)
    owner = replace(caller, user=job.spec.user)
    spec = spec_of(body, owner, rules)
    index = {ARRAY_INDEX: job.spec.env[ARRAY_INDEX]} if ARRAY_INDEX in job.spec.env else {}
    origin = _origin(job, spec.total_steps, services) if changes.from_checkpoint else ""
    return replace(spec, env={**spec.env, **index}, resubmit_of=job.id, from_checkpoint=origin)


def _origin(job: Job, total_steps: int | None, services: Services) -> str:
    """Return the checkpoint that the new job begins with, kept for it. Raise a 422 problem if there is none."""
    if job.checkpoint is None and not job.spec.from_checkpoint:
        raise invalid("from_checkpoint", f"job {job.id} has no accepted checkpoint; without it it begins at step 0")
    if total_steps is not None and total_steps <= job.steps_done:
        message = f"the checkpoint is of step {job.steps_done}; ask for more steps than that (--steps)"
        raise invalid("total_steps", message)
    if job.checkpoint is None:
        return job.spec.from_checkpoint
    try:
        return services.checkpoints.copy(job.id, job.checkpoint)
    except InvalidRequest as error:
        raise invalid(error.field, error.message) from None


def owner_of(job: Job, caller: Identity) -> Identity:
    """Return the identity whose submit this is: an operator submits for the job's user."""
    return replace(caller, user=job.spec.user) if caller.scope is Scope.OPERATOR else caller


def stated(spec: JobSpec, catalogue: Collection[str]) -> dict[str, Any]:
    """Return the fields of the submission that makes this specification; those that the service chose are as chosen."""
    return {
        "kind": None if spec.kind_from else rigid_kind(spec.kind),
        "kind_args": list(spec.kind_args),
        "argv": None if spec.kind in catalogue else list(spec.argv),
        "name": spec.name or None,
        "total_steps": spec.total_steps,
        "scale_factor": 1 if spec.is_elastic else spec.scale_factor,
        "sizes": list(spec.sizes),
        "global_batch": spec.global_batch or None,
        "max_global_batch": spec.max_global_batch or None,
        "plans": stated_plans(spec),
        "tier": spec.tier,
        "weight": spec.weight,
        "deadline_at_s": spec.deadline_at_s,
        "env": dict(spec.env),
        "workdir": spec.workdir or None,
        "python": spec.python or None,
        "setup": spec.setup or None,
        "dump": spec.dump or None,
        "restore": spec.restore or None,
        "image": spec.image or None,
        "secrets": list(spec.secrets),
        "data": dict(spec.data),
        "code": None if spec.code is None else CodeOfJob.model_validate(spec.code, from_attributes=True),
        "labels": dict(spec.labels),
        "throughputs": dict(spec.throughput_steps_per_s),
        "preemptible": spec.preemptible,
        "mode": spec.mode,
        "service": stated_service(spec.service),
        "longest_s": spec.longest_s,
        "idle_s": spec.idle_s,
        "reserved_at_s": spec.reserved_at_s,
        "accelerator_share": spec.accelerator_share,
        "cpu_cores": spec.cpu_cores,
        "memory_bytes": spec.memory_bytes,
        "accelerator_types": list(spec.accelerator_types),
        "accelerator_memory_bytes": spec.accelerator_memory_bytes,
        "node_labels": dict(spec.node_labels),
        "topology_label": spec.topology_label or None,
        "regions": list(spec.regions),
        "data_region": spec.data_region or None,
        "data_bytes": spec.data_bytes,
        "priority": spec.priority,
        "max_retries": spec.max_retries,
        "after": list(spec.after),
        "notify": None if spec.notify is None else [each.value for each in spec.notify],
    }


def _body(spec: JobSpec, changes: JobResubmit, rules: Rules) -> JobSubmit:
    """Return the body of a new submission: what has passed since, or is gone, is left out."""
    old = stated(spec, rules.catalogue)
    env = {name: value for name, value in old["env"].items() if name != ARRAY_INDEX}
    workers, deadline_at_s = rules.feasibility.workers, spec.deadline_at_s
    old |= {
        "after": [],
        "reserved_at_s": None,
        "deadline_at_s": None if deadline_at_s is None or deadline_at_s <= rules.now_s else deadline_at_s,
        "throughputs": {name: rate for name, rate in old["throughputs"].items() if name in largest_by_type(workers)},
    }
    new = changes.model_dump(exclude_none=True, exclude={"env", "from_checkpoint"})
    return JobSubmit.model_validate({**old, **new, "env": {**env, **changes.env}})
