"""What a submit is held against before anything is written; each refusal names the field and what would be accepted."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as HttpScope

from api.auth import may_see
from api.errors import invalid, problem
from api.rules import Rules
from api.schemas import CatalogueEntry, JobArray, JobSubmit
from api.services import Services
from gavel.errors import NotFound
from gavel.types import Identity, JobSpec, Scope, Tier


class BodyLimit:
    """ASGI middleware: who reads more than `limit_bytes` of a request body gets a 413."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self.app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Serve, counting what is read."""
        read_bytes = 0

        async def counted() -> Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > self._limit_bytes:
                raise HTTPException(413, f"the body is larger than {self._limit_bytes} bytes")
            return message

        await self.app(scope, counted if scope["type"] == "http" else receive, send)


def spec_of(body: JobSubmit, caller: Identity, rules: Rules) -> JobSpec:
    """The job's specification; raises a 422 or 503 problem that says what to change. See `check_predecessors` too."""
    tier = _tier(body.tier, caller, rules.tiers)
    kind, argv = _kind_and_argv(body, caller.user, rules.catalogue)
    _check_env(body.env)
    _check_fit(body, rules.capacity)
    return JobSpec(
        kind=kind,
        user=caller.user,
        tier=tier,
        argv=argv,
        total_steps=body.total_steps,
        name=body.name or "",
        env=dict(body.env),
        scale_factor=body.scale_factor,
        weight=body.weight,
        deadline_at_s=body.deadline_at_s,
        preemptible=body.preemptible,
        cpu_cores=body.cpu_cores,
        memory_bytes=body.memory_bytes,
        labels=dict(body.labels),
        throughput_steps_per_s=dict(body.throughputs),
        priority=checked_priority(body.priority, rules.tiers[tier], caller),
        max_retries=body.max_retries,
        after=tuple(dict.fromkeys(body.after)),
    )


def tiers_for(caller: Identity, existing: Collection[str]) -> list[str]:
    """The tiers that the caller may use, the default first; operators may use any."""
    choices = [tier for tier in caller.tiers if tier in existing]
    if caller.scope is Scope.OPERATOR:
        choices += [tier for tier in existing if tier not in choices]
    return choices


def specs_of_array(body: JobArray, caller: Identity, rules: Rules) -> list[JobSpec]:
    """A specification for each combination of the parameters, the last one varying fastest; raises as `spec_of`."""
    spec = spec_of(body.job, caller, rules)
    for name in body.parameters:
        if name.startswith("GAVEL_"):
            raise invalid(f"parameters.{name}", "names beginning with GAVEL_ are set by the service; choose another")
    if body.count is not None:
        combinations: list[dict[str, str]] = [{}] * body.count
    else:
        combinations = [
            dict(zip(body.parameters, values, strict=True)) for values in product(*body.parameters.values())
        ]
    return [_member(spec, index, chosen) for index, chosen in enumerate(combinations)]


def _member(spec: JobSpec, index: int, parameters: Mapping[str, str]) -> JobSpec:
    argv = tuple(_filled(argument, parameters) for argument in spec.argv)
    return replace(spec, argv=argv, env={**spec.env, **parameters, ARRAY_INDEX: str(index)})


def _filled(argument: str, parameters: Mapping[str, str]) -> str:
    for name, value in parameters.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument


def checked_priority(wanted: int | None, tier: Tier, caller: Identity) -> int:
    """The priority asked for, or the tier's; raises a 422 problem for a user's above the tier's."""
    if wanted is None:
        return tier.default_priority
    if wanted > tier.default_priority and caller.scope is not Scope.OPERATOR:
        raise invalid("priority", f"tier {tier.name} has at most {tier.default_priority}; an operator may go higher")
    return wanted


def check_predecessors(body: JobSubmit, caller: Identity, services: Services) -> None:
    """Raises a 422 problem for a job to wait for that the caller cannot see."""
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
    """SHA-256 (hex) of what was asked for, the same however the JSON was written, and when later fields are added."""
    return hashlib.sha256(json.dumps(body.model_dump(exclude_defaults=True), sort_keys=True).encode()).hexdigest()


def _tier(wanted: str | None, caller: Identity, existing: Collection[str]) -> str:
    """The tier asked for, or the caller's first."""
    choices = tiers_for(caller, existing)
    if not choices:
        raise invalid("tier", f"user {caller.user} has no tier; an operator gives one with PUT /v1/users/{caller.user}")
    if wanted is None:
        return choices[0]
    if wanted not in choices:
        raise invalid("tier", f"{wanted} is not one of your tiers: {', '.join(choices)}")
    return wanted


def _kind_and_argv(body: JobSubmit, user: str, catalogue: Mapping[str, CatalogueEntry]) -> tuple[str, tuple[str, ...]]:
    """Catalogue kinds bring their own program, so that everybody's measurements of them mean the same thing."""
    if body.kind is None:
        argv = tuple(body.argv or ())
        return f"{user}/{body.name or _digest(argv)}", argv
    entry = catalogue.get(body.kind)
    if entry is not None:
        if body.argv is not None and body.argv != entry.argv:
            raise invalid("argv", f"kind {body.kind} brings its own program; leave argv out, or use kind {user}/NAME")
        return body.kind, tuple(entry.argv)
    if body.argv is None:
        raise invalid("kind", f"{body.kind} is not in the catalogue ({', '.join(catalogue)}); for your own, give argv")
    if not body.kind.startswith(f"{user}/"):
        raise invalid("kind", f"a kind of your own is spelled {user}/NAME; in the catalogue are {', '.join(catalogue)}")
    return body.kind, tuple(body.argv)


ARRAY_INDEX = "GAVEL_ARRAY_INDEX"
GANG_TIMEOUT = "GAVEL_GANG_TIMEOUT_S"  # the one setting of the job runtime that is the user's


def _digest(argv: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(argv).encode()).hexdigest()[:12]


def _check_env(env: Mapping[str, str]) -> None:
    for name in env:
        if name.startswith("GAVEL_") and name != GANG_TIMEOUT:
            raise invalid(f"env.{name}", "names beginning with GAVEL_ are set by the service; choose another")


def _check_fit(body: JobSubmit, capacity: Mapping[str, int]) -> None:
    """The gang must fit on one type at least, and on one whose speed is stated if any is."""
    if not capacity:
        raise problem(503, "the scheduler has not seen its cluster yet")
    known = ", ".join(f"{name} ({count})" for name, count in capacity.items())
    unknown = sorted(set(body.throughputs) - set(capacity))
    if unknown:
        raise invalid(f"throughputs.{unknown[0]}", f"no such accelerator type; the cluster has {known}")
    largest = max(capacity.values())
    if body.scale_factor > largest:
        raise invalid("scale_factor", f"{body.scale_factor} is more than any type has; at most {largest} fit: {known}")
    if body.throughputs and all(capacity[name] < body.scale_factor for name in body.throughputs):
        raise invalid(
            "throughputs", f"states no type that holds {body.scale_factor} workers; state one that does: {known}"
        )
