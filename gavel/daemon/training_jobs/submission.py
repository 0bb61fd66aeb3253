"""An object as a submission, a changed object as an edit: by the rules of the API, refused with the field's name."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fastapi import Response
from fastapi_problem.error import Problem
from pydantic import ValidationError

from api.http.errors import of_gavel
from api.routes.jobs import submit_once
from api.rules import Rules, rules_of
from api.schemas import JobSubmit
from api.schemas.fields import NAME_PATTERN
from api.services import Services
from api.submission.fixed_fields import changed_fixed_fields
from api.submission.specs import check_stored, checked_priority, spec_of
from gavel.backends.kubernetes.protocol import DOMAIN
from gavel.config import KubernetesSection
from gavel.daemon.training_jobs.definition import TrainingJobSpec
from gavel.daemon.training_jobs.objects import TrainingObject
from gavel.errors import GavelError, KeyReused
from gavel.ports import JobEdit, JobFilter
from gavel.types import Identity, Job, JobSpec, Scope
from gavel.types.people import OPERATOR

OBJECT_LABEL = f"{DOMAIN}/trainingjob"
"""Label of a job: the uid of its object. It finds the job again where the status was not written."""

NAME_LETTERS = 63
FIRST_TIER = "default"
LIMIT_REACHED = 429
REFUSED_STATUSES = (422, LIMIT_REACHED)


class Declined(Exception):
    """The object cannot be taken as it is. `reason` is one word, `message` names the field and what would do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def user_of(seen: TrainingObject, section: KubernetesSection) -> str:
    """Return the user whose job an object is."""
    return section.namespace_users.get(seen.namespace, seen.namespace)


def submitted(seen: TrainingObject, services: Services, section: KubernetesSection) -> Job | None:
    """Return the job of an object, new or made before; None if it was purged. Raises Declined.

    Raises Problem, GavelError where it may work later: a service that has not seen its cluster, no database.
    """
    with _declining():
        wanted, caller = spec_in(seen), _identity(seen, services, section)
        body = _body(wanted, seen)

        def specs_of(rules: Rules) -> list[JobSpec]:
            check_stored(body, caller, services)
            return [spec_of(body, caller, rules)]

        jobs = submit_once(specs_of, body, Response(), caller, services, _key(seen), is_array=False)
        return _paused(jobs[0], wanted, services) if jobs else None


def edited(seen: TrainingObject, job: Job, services: Services, section: KubernetesSection) -> Job:
    """Return the job with the object's weight, priority, labels and pause. Raises Declined, with nothing changed.

    Raises Problem, GavelError where it may work later.
    """
    with _declining():
        if job.state.is_terminal:
            raise has_ended(job.id)
        wanted, caller = spec_in(seen), _identity(seen, services, section)
        body, rules = _body(wanted, seen), rules_of(services)
        if names := changed_fixed_fields(body, job.spec, rules.catalogue):
            fixed = ", ".join(f"spec.{name}" for name in names)
            raise Declined(
                "FieldIsFixed",
                f"{fixed}: of a job that is there only weight, priority, labels and paused"
                " can be changed; delete the object and make it again for a new job",
            )
        priority = checked_priority(body.priority, rules.tiers[job.spec.tier], caller)
        change = _change(body, priority, job.spec)
        if change != JobEdit():
            now_s = services.clock.now_s()
            job = services.store.edit_job(job.id, change, expected_version=None, now_s=now_s, by=caller.user)
        return _paused(job, wanted, services)


def has_ended(job_id: str) -> Declined:
    """Return the refusal of a change that comes after the end of the job."""
    return Declined("Ended", f"job {job_id} has ended; delete the object and make it again for a new job")


def job_with_label(seen: TrainingObject, services: Services, section: KubernetesSection) -> Job | None:
    """Return the job that was submitted for an object whose status does not say so; None if there is none."""
    where = JobFilter(user=user_of(seen, section), label=(OBJECT_LABEL, seen.uid))
    page = services.store.jobs(where, limit=200)
    return next((job for job in reversed(page.jobs) if is_of_object(job)), None)


def is_of_object(job: Job) -> bool:
    """Return whether an object made the job: one that was submitted again has its labels, and no object."""
    return OBJECT_LABEL in job.spec.labels and job.spec.resubmit_of is None


def spec_in(seen: TrainingObject) -> TrainingJobSpec:
    """Return what the user wants. Raises Declined with the field that is wrong."""
    try:
        return TrainingJobSpec.model_validate_json(json.dumps(dict(seen.spec)))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["spec", *(str(part) for part in first["loc"])])
        raise Declined("Invalid", f"{field}: {first['msg']}") from None


def _body(wanted: TrainingJobSpec, seen: TrainingObject) -> JobSubmit:
    """Return the submission; a job without a name has that of its object, where a job can have it."""
    may_have_it = re.match(NAME_PATTERN, seen.name) and len(seen.name) <= NAME_LETTERS
    name, labels = wanted.name or (seen.name if may_have_it else None), {**wanted.labels, OBJECT_LABEL: seen.uid}
    return wanted.model_copy(update={"name": name, "labels": labels})


def _identity(seen: TrainingObject, services: Services, section: KubernetesSection) -> Identity:
    """Return who submits. Raises Declined for a namespace that happens to be called as the operator is."""
    user = user_of(seen, section)
    if user == OPERATOR and seen.namespace not in section.namespace_users:
        raise Declined(
            "Invalid",
            f"metadata.namespace: {OPERATOR} is the operator's own name; name a user for this"
            " namespace in namespace_users of the section kubernetes",
        )
    tiers = next((each.tiers for each in services.store.users() if each.name == user), (FIRST_TIER,))
    first = section.namespace_tiers.get(seen.namespace)
    return Identity(user=user, scope=Scope.USER, tiers=tuple(dict.fromkeys([first, *tiers] if first else tiers)))


def _key(seen: TrainingObject) -> str:
    return f"kubernetes/{seen.namespace}/{seen.name}/{seen.uid}"


def _change(body: JobSubmit, priority: int, spec: JobSpec) -> JobEdit:
    labels: Mapping[str, str] = body.labels
    return JobEdit(
        weight=None if body.weight == spec.weight else body.weight,
        priority=None if priority == spec.priority else priority,
        labels=None if labels == spec.labels else labels,
    )


def _paused(job: Job, wanted: TrainingJobSpec, services: Services) -> Job:
    if job.pause_requested == wanted.paused or job.state.is_terminal:
        return job
    now_s = services.clock.now_s()
    return services.store.request_pause(job.id, is_paused=wanted.paused, now_s=now_s, by=job.spec.user)


@contextmanager
def _declining() -> Iterator[None]:
    """Turn a refusal of the API's rules into `Declined`; other errors pass."""
    try:
        yield
    except KeyReused:  # another service has just submitted an older `spec`: the next look finds that job
        raise
    except (Problem, GavelError) as error:
        refusal = error if isinstance(error, Problem) else of_gavel(error)
        if refusal.status not in REFUSED_STATUSES:
            raise
        if refusal.status == LIMIT_REACHED:
            raise Declined("LimitReached", str(refusal.detail)) from None
        raise Declined("Invalid", f"spec.{refusal.detail}") from None
