"""What the status of an object says, and which events a change of it is: pure functions."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from api.views.jobs_and_rounds import shown_state
from gavel.backends.kubernetes.api import Object
from gavel.daemon.training_jobs.definition import API_VERSION, KIND
from gavel.daemon.training_jobs.objects import TrainingObject
from gavel.types import Cluster, Expected, Job, JobState, Lease

Status = dict[str, Any]

REFUSED = "Refused"
ACCEPTED = "Accepted"
GONE = "Gone"
OF_ACCEPTANCE = ("observedGeneration", "conditions")
FIGURES = ("progress", "eta", "message")
"""What changes all the time while nothing has happened."""

COMPONENT = "gavel"
TEXT_MOST = 1000
NAME_MOST = 230


def status_of(job: Job, lease: Lease | None, cluster: Cluster, finish: Expected | None) -> Status:
    """Return what an object's status says about its job."""
    shown = {
        "job": job.id,
        "user": job.spec.user,
        "tier": job.spec.tier,
        "state": shown_state(job, lease).value,
        "progress": progress(job),
        "where": _where(lease, cluster),
        "eta": "" if finish is None or job.state.is_terminal else _minute(finish.at_s),
        "reason": job.reason.value,
        "message": job.explanation[:TEXT_MOST],
        "fix": job.reason.fix(job.id),
        "startedAt": _instant(job.started_at_s),
        "endedAt": _instant(job.finished_at_s) if job.state.is_terminal else "",
    }
    return {name: value for name, value in shown.items() if value}


def progress(job: Job) -> str:
    """Return how far a job is: percent of its steps, or its steps while nobody has said how many it has."""
    if not job.total_steps:
        return f"{job.steps_so_far} steps"
    return f"{int(100 * min(job.steps_so_far, job.total_steps) / job.total_steps)}%"


def gone(status: Mapping[str, Any], now_s: float) -> Status:
    """Return the status of an object whose job is no longer stored."""
    job_id = status.get("job", "")
    text = f"job {job_id} is no longer stored: delete the object and make it again for a new one"
    return {**status, "state": GONE, "message": text, "endedAt": _instant(now_s)}


def refusal(status: Mapping[str, Any], seen: TrainingObject, reason: str, message: str, now_s: float) -> Status:
    """Return the status with the refusal of the object's present `spec`; that of its job, if it has one, stays."""
    made = {**status, **_accepted(status, seen.generation, False, reason, message, now_s)}
    if not status.get("job"):
        made |= {"state": REFUSED, "reason": reason, "message": message[:TEXT_MOST]}
    return made


def acceptance(status: Mapping[str, Any], seen: TrainingObject, now_s: float) -> Status:
    """Return the part of a status that says that the present `spec` is in force."""
    return _accepted(status, seen.generation, True, "InForce", "the job is as spec says", now_s)


def kept(status: Mapping[str, Any]) -> Status:
    """Return the part of a status that is not about the job itself."""
    return {name: status[name] for name in OF_ACCEPTANCE if name in status}


def without_figures(status: Mapping[str, Any]) -> Status:
    """Return the part of a status that changes only when something has happened."""
    return {name: value for name, value in status.items() if name not in FIGURES}


def _accepted(
    status: Mapping[str, Any], generation: int, is_in_force: bool, reason: str, message: str, now_s: float
) -> Status:
    word = "True" if is_in_force else "False"
    before: Mapping[str, Any] = next(
        (each for each in status.get("conditions") or () if each.get("type") == ACCEPTED), {}
    )
    since = before.get("lastTransitionTime") if before.get("status") == word else None
    condition = {
        "type": ACCEPTED,
        "status": word,
        "reason": reason,
        "message": message[:TEXT_MOST],
        "observedGeneration": generation,
        "lastTransitionTime": since or _instant(now_s),
    }
    return {"observedGeneration": generation, "conditions": [condition]}


def _where(lease: Lease | None, cluster: Cluster) -> str:
    if lease is None:
        return ""
    held = set(lease.worker_ids)
    nodes = sorted({worker.node for worker in cluster.workers if worker.id in held})
    return f"{len(held)} {lease.accelerator_type} on {', '.join(nodes)}" if nodes else lease.accelerator_type


def _minute(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


def _instant(at_s: float | None) -> str:
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- events -----------------------------------------------------------------------------------------------------


def events(seen: TrainingObject, after: Mapping[str, Any], now_s: float) -> list[Object]:
    """Return the events of Kubernetes that a change of the status is, each with a name that says what it is about.

    An event that is sent twice has the same name, so that the API server refuses the second.
    """
    return [_event(seen, *each, now_s) for each in _happened(seen.status, after)]


def _happened(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield type, reason and message."""
    job_id = after.get("job", "")
    if job_id and not before.get("job"):
        yield "Normal", "Submitted", f"job {job_id} of user {after['user']} in tier {after['tier']}"
    if after.get("startedAt") and not before.get("startedAt"):
        yield "Normal", "Started", f"job {job_id} has started"
    if after.get("endedAt") and not before.get("endedAt"):
        has_failed = after.get("state") == JobState.FAILED.value
        yield "Warning" if has_failed else "Normal", "Ended", f"job {job_id}: {after['state']}, {after['message']}"
    refused = _refused(after)
    if refused and refused != _refused(before):
        yield "Warning", REFUSED, refused


def _refused(status: Mapping[str, Any]) -> str:
    conditions = status.get("conditions") or ()
    return next((str(each.get("message")) for each in conditions if each.get("status") == "False"), "")


def _event(seen: TrainingObject, kind: str, reason: str, message: str, now_s: float) -> Object:
    digest = hashlib.sha256(f"{seen.uid} {reason} {message}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{seen.name[:NAME_MOST]}.{digest}", "namespace": seen.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": seen.namespace,
            "name": seen.name,
            "uid": seen.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message[:TEXT_MOST],
        "source": {"component": COMPONENT},
        "firstTimestamp": _instant(now_s),
        "lastTimestamp": _instant(now_s),
        "count": 1,
    }
