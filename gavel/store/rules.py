"""Rules of both stores: job ids that sort by time, and the checks that a write has to pass."""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gavel.errors import (
    Conflict,
    InvalidRequest,
    InvariantViolated,
    LimitReached,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)
from gavel.ports import AuditEntry, JobEdit, JobEvent
from gavel.types import (
    BearerToken,
    Identity,
    Job,
    JobId,
    JobSpec,
    JobState,
    OperationId,
    OperationState,
    Reason,
    RoundPlan,
    Scope,
    ServiceSpec,
    Tier,
    User,
)
from gavel.types.checkpoints import CHECKPOINT_GONE, CHECKPOINT_UNREADABLE

DEFAULT_TIER = Tier(name="default")
KEEP_ROUNDS = 2000
KEEP_EVENTS_S = 90 * 86_400.0
KEEP_OPERATIONS = 10_000  # finished ones; older ones are forgotten
PENDING_COMMANDS_MAX = 1000
TOKEN_ID_DIGITS = 16  # of a token's SHA-256: tells tokens apart, and tells nothing of the token
GANG_TAKEN = ("gang.moved", "gang.preempted")  # actions of a round, see gavel/mechanism/explaining/preemption_audit.py
ACTIVE = tuple(state for state in JobState if not state.is_terminal)
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: in the order of its characters, no i, l, o, u


class JobIds:
    """Makes ids of 16 characters `[0-9a-z]`: 48 bits of milliseconds, 32 random bits; they grow within a process."""

    def __init__(self, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._random_bits = random_bits
        self._last = -1

    def next(self, now_s: float) -> JobId:
        """Return a new id, above every earlier one even when the clock stood still or went back."""
        self._last = max(self._last + 1, _milliseconds(now_s) << 32 | self._random_bits(32))
        return _id_of(self._last)


def id_before(at_s: float) -> JobId:
    """Return an id below those of all jobs that were submitted at the instant or later, by the clock of then."""
    return _id_of(_milliseconds(at_s) << 32)


def _milliseconds(at_s: float) -> int:
    return min(max(int(at_s * 1000), 0), 2**48 - 1)


def _id_of(number: int) -> JobId:
    return "".join(_BASE32[number >> shift & 31] for shift in range(75, -5, -5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The part of a job that may only grow. `total_steps` 0: the submission did not say how many steps it has."""

    state: JobState
    generation: int
    steps_done: int
    total_steps: int


def gone_checkpoints(events: Iterable[JobEvent]) -> frozenset[JobId]:
    """Return the jobs whose accepted checkpoint is gone, or cannot be loaded, as these events say."""
    return frozenset(event.job_id for event in events if event.kind in (CHECKPOINT_GONE, CHECKPOINT_UNREADABLE))


def check_progress(job_id: JobId, before: Progress, after: Progress, *, is_gone: bool = False) -> None:
    """Raise if generation or steps done fall, a step is beyond the last, or an ended job is continued (I5, I7).

    Steps done may fall where the checkpoint `is_gone`.
    """
    if before.state.is_terminal and after.state is not before.state:
        raise InvariantViolated("terminal_is_final", f"job {job_id} is {before.state} and cannot become {after.state}")
    if after.generation < before.generation:
        raise InvariantViolated(
            "generations_grow", f"token of job {job_id} would fall from {before.generation} to {after.generation}"
        )
    least = 0 if is_gone else before.steps_done
    if not least <= after.steps_done <= (before.total_steps or after.steps_done):
        raise InvariantViolated(
            "progress_grows",
            f"steps done of job {job_id} would go from {before.steps_done} to {after.steps_done} "
            f"of {before.total_steps}",
        )


def check_round(plan: RoundPlan, newest: int) -> None:
    """Raise unless the plan follows the newest stored round (I8; 0: none yet): another process planned it first."""
    if plan.parent_round_index != newest or plan.round_index != newest + 1:
        raise StaleVersion(
            f"round {plan.round_index} after {plan.parent_round_index} cannot follow the newest stored round {newest}: "
            "take a new snapshot and plan again"
        )


def count_preemptions(audit: Iterable[AuditEntry]) -> int:
    """Return how many of these decisions stop or move a gang."""
    return sum(entry.action in GANG_TAKEN for entry in audit)


def check_amended(plan: RoundPlan, stored: RoundPlan | None) -> None:
    """Raise unless the round is stored and its start and duration stay; else the amendment used an old view."""
    if stored is None or (stored.starts_at_s, stored.duration_s) != (plan.starts_at_s, plan.duration_s):
        raise StaleVersion(f"round {plan.round_index} is not kept as it was: take a new snapshot and decide again")


def check_pending(waiting: int) -> None:
    """Raise StoreUnavailable when as many commands wait as are allowed."""
    if waiting >= PENDING_COMMANDS_MAX:
        raise StoreUnavailable(f"{waiting} commands wait for the scheduler already, try again later")


def check_unfinished(operation_id: OperationId, before: OperationState | None) -> None:
    """Raise NotFound if there is no such operation, InvariantViolated if it has already ended."""
    if before is None:
        raise no_operation(operation_id)
    if before is not OperationState.PENDING:
        raise InvariantViolated("operations_end_once", f"operation {operation_id} is {before} already")


def new_jobs(
    specs: Sequence[JobSpec], ids: JobIds, now_s: float, *, waits_for: Collection[JobId], is_array: bool
) -> tuple[Job, ...]:
    """Return queued jobs with new ids; the jobs of an array share the id of the first.

    `waits_for`: the ids in any `after` that have not completed yet.
    """
    made = [ids.next(now_s) for _ in specs]
    if is_array:
        specs = [replace(spec, array_id=made[0], array_index=index) for index, spec in enumerate(specs)]
    return tuple(
        Job(
            id=job_id,
            spec=spec,
            submitted_at_s=now_s,
            steps_done=spec.first_step,
            waits_for=tuple(each for each in spec.after if each in waits_for),
        )
        for job_id, spec in zip(made, specs, strict=True)
    )


def unmet(after: Collection[JobId], states: Mapping[JobId, JobState]) -> set[JobId]:
    """Return those of `after` that have yet to complete; raise InvalidRequest for one that never will."""
    for job_id in sorted(after):
        state = states.get(job_id)
        if state is None:
            raise InvalidRequest("after", f"no job {job_id}")
        if state in (JobState.FAILED, JobState.CANCELLED):
            raise InvalidRequest("after", f"job {job_id} is {state} and will never complete; submit it again first")
    return {job_id for job_id in after if states[job_id] is not JobState.COMPLETED}


def check_limits(
    specs: Sequence[JobSpec],
    users: Mapping[str, int],
    tiers: Mapping[str, int],
    *,
    per_user: int | None,
    per_tier: Mapping[str, int],
) -> None:
    """Raise LimitReached if new jobs and the unfinished ones of `users` and `tiers` exceed a limit."""
    user = specs[0].user
    if per_user is not None and users.get(user, 0) + len(specs) > per_user:
        raise LimitReached(
            f"{Reason.TOO_MANY_JOBS}: {user} has {users.get(user, 0)} unfinished jobs and may have {per_user},"
            f" so {len(specs)} more cannot come. {Reason.TOO_MANY_JOBS.fix()}"
        )
    for tier, more in Counter(spec.tier for spec in specs).items():
        if tier in per_tier and tiers.get(tier, 0) + more > per_tier[tier]:
            raise LimitReached(
                f"{Reason.TOO_MANY_JOBS}: tier {tier} has {tiers.get(tier, 0)} unfinished jobs and may have"
                f" {per_tier[tier]}, so {more} more cannot come. {Reason.TOO_MANY_JOBS.fix()}"
            )


def edited(
    job: Job, edit: JobEdit, expected_version: int | None
) -> tuple[JobSpec, Mapping[str, Any], Mapping[str, Any]]:
    """Return the job's new specification, and the changed fields before and after. Raises StaleVersion."""
    if expected_version not in (None, job.version):
        raise StaleVersion(f"job {job.id} is at version {job.version}, not {expected_version}: read it again")
    wanted: dict[str, Any] = {"weight": edit.weight, "priority": edit.priority, "labels": edit.labels}
    wanted["longest_s"] = edit.longest_s
    if edit.longest_s is not None and job.over:
        raise Conflict(f"session {job.id} is ending and cannot be extended: {job.over}")
    wanted["service"] = service = _service_after(job, edit)
    old = {name: getattr(job.spec, name) for name in wanted}
    after = {name: value for name, value in wanted.items() if value is not None and value != old[name]}
    spec = replace(job.spec, **after, **((edit.program or {}) if service else {}))
    before = {name: old[name] for name in after}
    return spec, *_shown(before, after)


def _service_after(job: Job, edit: JobEdit) -> ServiceSpec | None:
    """Return the service after the change; None for another job. Raises InvalidRequest for numbers that do not fit."""
    if job.spec.service is None:
        return None
    service = edit.service_after(job.spec.service)
    least, most = service.replicas_min, service.replicas_max
    if least > most:
        raise InvalidRequest("replicas_min", f"{least} is more than replicas_max, {most}; change both, or another one")
    if not least <= service.replicas <= most:
        has = f"service {job.id} has {least} to {most} replicas, and would have {service.replicas}"
        raise InvalidRequest("replicas", f"{has}; give a number between, or change the bounds, too")
    return service


def _shown(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what changed for people: of a service its numbers, version and demand, never its variables."""
    old, new = (_numbers(each.pop("service", None)) for each in (before, after))
    names = [name for name in new if new[name] != old[name]]
    return before | {name: old[name] for name in names}, after | {name: new[name] for name in names}


def _numbers(service: ServiceSpec | None) -> dict[str, Any]:
    if service is None:
        return {}
    demand = service.demand
    own = {name: getattr(service, name) for name in ("replicas", "replicas_min", "replicas_max", "version")}
    rates = {} if demand is None else {"rate": demand.stated_rate, "headroom": demand.headroom}
    return {**own, "stated_demand": service.stated_demand, **rates}


def check_alive(job: Job, become: str) -> None:
    """Raise Conflict for a job that has ended."""
    if job.state.is_terminal:
        raise Conflict(f"job {job.id} is already {job.state} and cannot be {become}")


def request_records(
    job: Job, kind: str, now_s: float, by: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> tuple[JobEvent, AuditEntry]:
    """Return the event and the audit entry of a request that a user or an operator made of a job."""
    changes = ", ".join(f"{name} {(before or {})[name]} -> {value}" for name, value in after.items())
    entry = AuditEntry(
        at_s=now_s,
        by=by or job.spec.user,
        subject=f"job/{job.id}",
        before=before,
        after=after,
        action=kind,
        user=job.spec.user,
    )
    return JobEvent(job_id=job.id, at_s=now_s, kind=kind, message=changes), entry


def tenant_audit_entry(kind: str, before: Tier | User | None, after: Tier | User, by: str, now_s: float) -> AuditEntry:
    """Return the audit entry for a change of a `tier` or a `user`."""
    return AuditEntry(
        at_s=now_s,
        by=by,
        subject=f"{kind}/{after.name}",
        before=None if before is None else asdict(before),
        after=asdict(after),
        action=f"{kind}.changed",
        user=after.name if kind == "user" else "",
    )


def token_audit_entries(holder: Identity, by: str, now_s: float) -> tuple[AuditEntry, ...]:
    """Return the audit entry for a new token; none for a job's token, since each launch makes one."""
    if holder.scope is Scope.JOB:
        return ()
    entry = AuditEntry(
        at_s=now_s,
        by=by or holder.user,
        subject=f"user/{holder.user}",
        before=None,
        after={"scope": holder.scope.value},
        action="token.created",
        user=holder.user,
    )
    return (entry,)


def revocation_audit_entry(token: BearerToken, by: str, now_s: float) -> AuditEntry:
    """Return the audit entry for a token that was revoked."""
    held = {"id": token.id, "scope": token.scope.value}
    subject = f"user/{token.user}"
    return AuditEntry(
        at_s=now_s, by=by, subject=subject, before=held, after={}, action="token.revoked", user=token.user
    )


def next_tier(tier: Tier, stored: Mapping[str, Tier], expected_version: int | None) -> int:
    """Return the next version of `tier`. Raises StaleVersion, NotFound (parent), InvalidRequest (cycle, guarantees)."""
    current = stored[tier.name].version if tier.name in stored else None
    if current != expected_version:
        raise StaleVersion(f"tier {tier.name} is at version {current}, not {expected_version}: read it again")
    others = {name: other for name, other in stored.items() if name != tier.name}
    ancestor = tier.parent
    while ancestor is not None:
        if ancestor == tier.name:
            raise InvalidRequest("parent", f"tier {tier.name} would be its own ancestor; choose another parent")
        if ancestor not in others:
            raise NotFound(f"tier {tier.name} names the parent {ancestor}, which does not exist; create it first")
        ancestor = others[ancestor].parent
    _check_guarantees(tier, others)
    return (current or 0) + 1


def _check_guarantees(tier: Tier, others: Mapping[str, Tier]) -> None:
    """Raise if siblings are guaranteed more than their parent, or the tiers below more than this tier."""
    most = others[tier.parent].guarantee if tier.parent else 1.0
    together = tier.guarantee + sum(other.guarantee for other in others.values() if other.parent == tier.parent)
    if together > most + 1e-9:
        above = f"what tier {tier.parent} has" if tier.parent else "all there is"
        raise InvalidRequest("guarantee", f"siblings would be guaranteed {together:g} of {most:g}, {above}; lower one")
    below = sum(other.guarantee for other in others.values() if other.parent == tier.name)
    if below > tier.guarantee + 1e-9:
        raise InvalidRequest(
            "guarantee", f"is {tier.guarantee:g}, and tiers below are guaranteed {below:g}; lower theirs"
        )


def check_user(user: User, tiers: Mapping[str, Tier]) -> None:
    """Raise InvalidRequest for a user without tiers, NotFound for an unknown tier."""
    if not user.tiers:
        raise InvalidRequest("tiers", f"user {user.name} needs at least one tier; the first is the default")
    for tier in user.tiers:
        if tier not in tiers:
            raise NotFound(f"no tier {tier}; there are: {', '.join(sorted(tiers))}")


def check_limit(limit: int, most: int) -> None:
    """Raise InvalidRequest unless 1 <= limit <= most."""
    if not 1 <= limit <= most:
        raise InvalidRequest("limit", f"{limit} is not between 1 and {most}")


def check_token_hash(token_hash: str) -> None:
    """Raise InvalidRequest unless this is a SHA-256 in hex: a token itself is never stored."""
    if len(token_hash) != 64 or set(token_hash) - set("0123456789abcdef"):
        raise InvalidRequest("token_hash", "give the SHA-256 of the token as 64 lower-case hex digits")


def no_job(job_id: JobId) -> NotFound:
    """Return the error for an unknown job."""
    return NotFound(f"no job {job_id}")


def no_operation(operation_id: OperationId) -> NotFound:
    """Return the error for an operation that never was, or is no longer kept."""
    return NotFound(f"no operation {operation_id}, or no longer kept")


def no_round(round_index: int | None) -> NotFound:
    """Return the error for a round that was never planned, or is no longer kept."""
    what = "no round has been planned yet" if round_index is None else f"no round {round_index}, or no longer kept"
    return NotFound(what)
