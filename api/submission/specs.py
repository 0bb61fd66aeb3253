"""Turns a submission into a specification of each job. A refusal names the field and what is accepted."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product

from pydantic import BaseModel

from api.access.auth import may_see
from api.http.errors import invalid, problem
from api.rules import Rules
from api.schemas import CatalogueEntry, JobArraySubmit, JobSubmit
from api.services import Services
from api.submission.code import check_code, check_image
from api.submission.folders import check_folders, program_files
from api.submission.inference import check_domains, check_rates, check_service, service_of
from api.submission.inputs import check_data
from api.submission.kinds import kind_of
from api.submission.notify import check_notify
from api.submission.plans import check_places, check_plans, plans_of, with_first_plan
from api.submission.regions import check_regions, largest_by_type
from api.submission.sessions import check_session, session_of
from api.submission.sizes import check_sizes, sizes_of, smallest_of
from gavel.backends.secret_store import missing_secret
from gavel.errors import NotFound, did_you_mean
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.cluster.unmet_needs import unknown_type, unmet_need
from gavel.mechanism.explaining.durations import lasting
from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.mechanism.planning.topology import fits_in_one_place
from gavel.types import CodeVersion, ExecutionPlan, Identity, JobSpec, Scope, Tier, in_plan
from gavel.types.elastic_kinds import elastic_kind
from gavel.types.environment import ARRAY_INDEX, reserved
from gavel.types.execution_plans import plan_kind
from gavel.types.occasions import Occasion


def spec_of(body: JobSubmit, caller: Identity, rules: Rules) -> JobSpec:
    """Return the job's specification. Raise a 422 or 503 problem that says what to change.

    See `check_stored` too.
    """
    tier = _tier(body.tier, caller, rules.tiers)
    kind, kind_from, argv = _kind_and_argv(body, caller.user, rules.catalogue)
    _check_program(body)
    if not rules.may_be_unreached(body.regions):
        _check_fit(body, rules.feasibility.workers)
    _check_topology(body)
    check_sizes(body, rules.feasibility.workers)
    check_plans(body)
    _check_deadline(body, rules.now_s)
    check_session(body, rules.tiers[tier], rules)
    check_service(body, rules.backend)
    spec = JobSpec(
        kind=elastic_kind(kind, body.global_batch or 0, body.max_global_batch or 0),
        kind_from=kind_from,
        kind_args=tuple(body.kind_args),
        user=caller.user,
        tier=tier,
        argv=argv,
        total_steps=body.total_steps,
        name=body.name or "",
        env=dict(body.env),
        secrets=tuple(dict.fromkeys(body.secrets)),
        workdir=body.workdir or "",
        python=body.python or "",
        setup=body.setup or "",
        dump=body.dump or "",
        restore=body.restore or "",
        image=body.image or "",
        data=dict(body.data),
        code=CodeVersion(**body.code.model_dump()) if body.code else None,
        scale_factor=smallest_of(body),
        sizes=sizes_of(body),
        global_batch=body.global_batch or 0,
        max_global_batch=body.max_global_batch or 0,
        plans=plans_of(body, lambda own: _kind_under(own, kind, body, caller.user)),
        weight=body.weight,
        deadline_at_s=body.deadline_at_s,
        preemptible=body.preemptible and body.mode == "batch",
        **session_of(body, rules.tiers[tier]),
        service=service_of(body.service),
        cpu_cores=body.cpu_cores,
        memory_bytes=body.memory_bytes,
        accelerator_types=tuple(dict.fromkeys(body.accelerator_types)),
        accelerator_memory_bytes=body.accelerator_memory_bytes,
        node_labels=dict(body.node_labels),
        topology_label=body.topology_label or "",
        regions=tuple(dict.fromkeys(body.regions)),
        data_region=body.data_region or "",
        data_bytes=body.data_bytes,
        labels=dict(body.labels),
        throughput_steps_per_s=dict(body.throughputs),
        priority=checked_priority(body.priority, rules.tiers[tier], caller),
        max_retries=body.max_retries,
        after=tuple(dict.fromkeys(body.after)),
        notify=None if body.notify is None else tuple(dict.fromkeys(map(Occasion, body.notify))),
    )
    check_regions(spec, rules)
    if not rules.may_be_unreached(spec.regions):
        _check_needs(spec, rules.feasibility)
    _check_stay(spec, rules)
    check_domains(spec, rules.feasibility)
    check_rates(spec, rules.feasibility)
    return with_first_plan(spec)


def _kind_under(argv: Sequence[str] | None, kind: str, body: JobSubmit, user: str) -> str:
    """The kind of a plan's own program, if kinds are made of programs; else that of the job."""
    return kind if body.kind is not None or argv is None else kind_of(user, argv, body.workdir, body.kind_args)[0]


def _check_topology(body: JobSubmit) -> None:
    """Raise a 422 problem for what does not go with a gang that stays in one place."""
    for name in ("sizes", "plans", "reserved_at_s"):
        if body.topology_label and getattr(body, name):
            raise invalid("topology_label", f"does not go with {name}; leave one of them out")


def _check_deadline(body: JobSubmit, now_s: float) -> None:
    if body.deadline_at_s is not None and body.deadline_at_s <= now_s:
        ago = lasting(now_s - body.deadline_at_s)
        raise invalid("deadline_at_s", f"passed {ago} ago; give an instant to come, or leave it out")


def tiers_for(caller: Identity, existing: Collection[str]) -> list[str]:
    """Return the tiers that the caller may use, its default first; all tiers for operators."""
    choices = [tier for tier in caller.tiers if tier in existing]
    if caller.scope is Scope.OPERATOR:
        choices += [tier for tier in existing if tier not in choices]
    return choices


def specs_of_array(body: JobArraySubmit, caller: Identity, rules: Rules) -> list[JobSpec]:
    """Return a specification for each combination of the parameters, the last varying fastest. Raise as `spec_of`."""
    spec = spec_of(body.job, caller, rules)
    for name in body.parameters:
        if why := reserved(name):
            raise invalid(f"parameters.{name}", why)
        if name in spec.secrets:
            raise invalid(f"parameters.{name}", "is a secret of the job, too; leave it out of one of them")
    if body.count is not None:
        combinations: list[dict[str, str]] = [{}] * body.count
    else:
        combinations = [
            dict(zip(body.parameters, values, strict=True)) for values in product(*body.parameters.values())
        ]
    return [_member(spec, index, chosen) for index, chosen in enumerate(combinations)]


def _member(spec: JobSpec, index: int, parameters: Mapping[str, str]) -> JobSpec:
    argv = _all_filled(spec.argv, parameters)
    plans = tuple([replace(plan, argv=_all_filled(plan.argv, parameters)) for plan in spec.plans])
    member = replace(spec, argv=argv, plans=plans, env={**spec.env, **parameters, ARRAY_INDEX: str(index)})
    if not spec.kind_from:
        return member
    kind, kind_from = kind_of(spec.user, argv, spec.workdir or None, spec.kind_args, spec.argv)
    if not plans:
        return replace(member, kind=_elastic(kind, spec), kind_from=kind_from)
    plans = tuple([_of_member(plan, kind, before.argv, spec) for plan, before in zip(plans, spec.plans, strict=True)])
    return replace(in_plan(replace(member, plans=plans, plan=""), spec.plan), kind_from=kind_from)


def _elastic(kind: str, spec: JobSpec) -> str:
    return elastic_kind(kind, spec.global_batch, spec.max_global_batch)


def _of_member(plan: ExecutionPlan, kind: str, template: Sequence[str], spec: JobSpec) -> ExecutionPlan:
    """The plan of a member of an array, with the kind that its program has; `template`: its command in the array."""
    if plan.argv:
        kind, _ = kind_of(spec.user, plan.argv, spec.workdir or None, spec.kind_args, template)
    return replace(plan, kind=plan_kind(kind, plan.name, spec.global_batch, spec.max_global_batch))


def _all_filled(argv: Sequence[str], parameters: Mapping[str, str]) -> tuple[str, ...]:
    return tuple([_filled(argument, parameters) for argument in argv])


def _filled(argument: str, parameters: Mapping[str, str]) -> str:
    for name, value in parameters.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument


def checked_priority(wanted: int | None, tier: Tier, caller: Identity) -> int:
    """Return the priority asked for, or the tier's. Raise a 422 problem for a user's above the tier's."""
    if wanted is None:
        return tier.default_priority
    if wanted > tier.default_priority and caller.scope is not Scope.OPERATOR:
        raise invalid("priority", f"tier {tier.name} has at most {tier.default_priority}; an operator may go higher")
    return wanted


def refers_to_stored(body: JobSubmit) -> bool:
    """Return whether the job names anything that `check_stored` has to look up."""
    named = ("after", "code", "data", "image", "notify", "python", "secrets", "workdir")
    return any(getattr(body, name) for name in named) or bool(program_files(body))


def check_stored(body: JobSubmit, caller: Identity, services: Services) -> None:
    """Raise a 422 problem for what the job names and is not there, or not its own: code, files, secrets, other jobs."""
    check_code(body.code, services)
    check_image(body.image, services)
    check_data(body, services)
    check_folders(body, caller.user, services)
    check_notify(body, caller, services)
    if name := services.secrets.missing(caller.user, body.secrets):
        raise invalid("secrets", missing_secret(name))
    for job_id in body.after:
        _check_predecessor(job_id, caller, services)


def _check_predecessor(job_id: str, caller: Identity, services: Services) -> None:
    try:
        is_visible = may_see(caller, services.store.job(job_id))
    except NotFound:
        is_visible = False
    if not is_visible:
        raise invalid("after", f"no job {job_id}")


def body_hash(body: BaseModel) -> str:
    """Return the SHA-256 (hex) of a body, which depends neither on the JSON's form nor on fields added later."""
    return hashlib.sha256(json.dumps(body.model_dump(exclude_defaults=True), sort_keys=True).encode()).hexdigest()


def _tier(wanted: str | None, caller: Identity, existing: Collection[str]) -> str:
    """Return the tier asked for, or the caller's first. Raise a 422 problem for any other."""
    choices = tiers_for(caller, existing)
    if not choices:
        raise invalid("tier", f"user {caller.user} has no tier; an operator gives one with PUT /v1/users/{caller.user}")
    if wanted is None:
        return choices[0]
    if wanted not in choices:
        hint = did_you_mean(wanted, choices)
        raise invalid("tier", f"{wanted} is not one of your tiers: {', '.join(choices)}{hint}")
    return wanted


def _kind_and_argv(
    body: JobSubmit, user: str, catalogue: Mapping[str, CatalogueEntry]
) -> tuple[str, str, tuple[str, ...]]:
    """Return the kind, what it was made of ("": it was stated), and argv.

    A catalogue kind brings its own program, so that all measurements of it are comparable.
    """
    if body.kind is None:
        argv = tuple(body.argv or ())
        return *kind_of(user, argv, body.workdir, body.kind_args), argv
    entry = catalogue.get(body.kind)
    if entry is not None:
        if body.argv is not None and body.argv != entry.argv:
            raise invalid("argv", f"kind {body.kind} brings its own program; leave argv out, or use kind {user}/NAME")
        _check_is_plain(body)
        if body.total_steps is None:
            raise invalid("total_steps", f"say how many steps; the program of kind {body.kind} does not say it")
        return body.kind, "", tuple(entry.argv)
    if body.argv is None:
        names = f"{', '.join(catalogue)}{did_you_mean(body.kind, catalogue)}"
        raise invalid("kind", f"{body.kind} is not in the catalogue ({names}); for your own, give argv")
    if not body.kind.startswith(f"{user}/"):
        raise invalid("kind", f"a kind of your own is spelled {user}/NAME; in the catalogue are {', '.join(catalogue)}")
    return body.kind, "", tuple(body.argv)


def _check_is_plain(body: JobSubmit) -> None:
    """Raise a 422 problem if a catalogue kind is to run otherwise: its measurements would not be comparable."""
    for name in ("workdir", "python", "setup", "image", "code", "dump", "restore"):
        if getattr(body, name) is not None:
            raise invalid(name, f"kind {body.kind} brings its own program and environment; leave {name} out")
    if body.sizes:
        raise invalid("sizes", f"the program of kind {body.kind} does not divide its batch; state scale_factor")
    if body.plans:
        raise invalid("plans", f"the program of kind {body.kind} knows no plans; leave them out, or give your own argv")


def _check_program(body: JobSubmit) -> None:
    """Raise a 422 problem for what does not go together of a program and its surroundings."""
    _check_env(body.env)
    _check_secrets(body)
    _check_image(body)
    _check_hooks(body)


def _check_env(env: Mapping[str, str]) -> None:
    for name in env:
        if why := reserved(name):
            raise invalid(f"env.{name}", why)


def _check_secrets(body: JobSubmit) -> None:
    for name in body.secrets:
        if name in body.env:
            raise invalid("secrets", f"{name} is in env, too; leave it out of one of them")


def _check_image(body: JobSubmit) -> None:
    """Raise a 422 problem for what a job in an image cannot have."""
    for name in ("python", "setup") if body.image else ():
        if getattr(body, name):
            raise invalid(name, f"image {body.image} brings its own interpreter and packages; leave {name} out")
    if body.image and body.workdir and ":" in body.workdir:
        raise invalid("workdir", "a folder with a colon in its path cannot be in a container; name another")


def _check_hooks(body: JobSubmit) -> None:
    """Raise a 422 problem for commands that save a program's state, where they cannot work."""
    for name, other in (("dump", "restore"), ("restore", "dump")):
        if getattr(body, name) and not getattr(body, other):
            raise invalid(other, f"{name} needs it: one saves what the other gives back")
    if body.dump and body.total_steps is not None:
        raise invalid("total_steps", "leave it out with dump and restore: a program that needs them counts no steps")


def _check_fit(body: JobSubmit, capacity: Mapping[str, int]) -> None:
    """Raise a 422 problem unless the gang fits on one type, and on one with a stated throughput if any is stated."""
    if not capacity:
        raise problem(503, "the scheduler has not seen its cluster yet")
    counts = ", ".join(f"{name} ({count})" for name, count in capacity.items())
    largest_of = largest_by_type(capacity)
    unknown = sorted(set(body.throughputs) - set(largest_of))
    if unknown:
        raise invalid(f"throughputs.{unknown[0]}", f"no such accelerator type; the cluster has {counts}")
    largest = max(capacity.values())
    if body.scale_factor > largest:
        raise invalid("scale_factor", f"{body.scale_factor} is more than any type has; at most {largest} fit: {counts}")
    if body.throughputs and all(largest_of[name] < body.scale_factor for name in body.throughputs):
        raise invalid(
            "throughputs", f"states no type that holds {body.scale_factor} workers; state one that does: {counts}"
        )


def _check_stay(spec: JobSpec, rules: Rules) -> None:
    """Raise a 422 problem for a job that may not be preempted and for which there could never be room."""
    if spec.preemptible:
        return
    types = rules.feasibility.types_of(spec)
    if why := Room(rules.tiers, rules.feasibility.workers).why_never(spec, types):
        or_else = "submit it as a batch job" if spec.mode != "batch" else "let the job be preempted"
        raise invalid("preemptible", f"{why}. Ask for fewer workers, or {or_else}")


def _check_needs(spec: JobSpec, feasibility: Feasibility) -> None:
    """Raise a 422 problem for an accelerator type that is not there, and if the gang can run on none."""
    if name := unknown_type(spec, feasibility):
        types = feasibility.types
        there = f"there is no accelerator type {name}; the cluster has {', '.join(types)}{did_you_mean(name, types)}"
        raise invalid("accelerator_types", there)
    if unmet := unmet_need(spec, feasibility):
        raise invalid(unmet.field, f"{unmet.message}. {unmet.would_do}")
    if not fits_in_one_place(spec, feasibility):
        few = f"no value of label {spec.topology_label} has nodes with room for {spec.scale_factor} such workers"
        raise invalid("topology_label", f"{few}. Leave it out, or ask for fewer workers")
    check_places(spec, feasibility)
