"""The clients' calls about jobs."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack
from uuid import uuid4

from gavel.client.answers import AuditEntry, Cancelled, Event, Job, JobBatch, Submission
from gavel.client.errors import GavelApiError, ServiceUnreachable
from gavel.client.events import LOG_LIMIT_BYTES, log_chunk
from gavel.client.script import Item, Items, Listing, Method, Pause, Script, call, get, paged, part

TERMINAL_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
RESTART_S = 60.0  # how long a waiting client looks for a service that went away
WAIT_PAUSES_S = (0.1, 0.15, 0.25, 0.4, 0.6)  # between looks at a job that is waited for; then a second


class JobCalls:
    """Part of both clients."""

    @Method
    def submit(self, *, idempotency_key: str | None = None, **job: Unpack[Submission]) -> Script[Job]:
        """Submit a job. Repeated on lost connections under one key, so that it is submitted once."""
        return _submitted(
            "/v1/jobs", {name: value for name, value in job.items() if value is not None}, idempotency_key
        )

    @Method
    def submit_batch(self, jobs: Sequence[Submission], *, idempotency_key: str | None = None) -> Script[JobBatch]:
        """Submit many jobs, all or none; repeated on lost connections under one key."""
        return _submitted("/v1/jobs:batch", {"jobs": [dict(job) for job in jobs]}, idempotency_key)

    @Method
    def submit_array(
        self,
        job: Submission,
        *,
        parameters: Mapping[str, Sequence[str]] | None = None,
        count: int | None = None,
        idempotency_key: str | None = None,
    ) -> Script[JobBatch]:
        """Submit a job for each combination of parameters (set in env, put for `{NAME}` in argv), or `count` times."""
        body: dict[str, Any] = {"job": dict(job)}
        body |= {"count": count} if parameters is None else {"parameters": {k: list(v) for k, v in parameters.items()}}
        return _submitted("/v1/jobs:array", body, idempotency_key)

    @Method
    def job(self, job_id: str) -> Script[Job]:
        """One job."""
        return get(_path(job_id))

    @Listing
    def jobs(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        tier: str | None = None,
        label: str | None = None,
        array_id: str | None = None,
        limit: int | None = None,
    ) -> Items[Job]:
        """Jobs, newest first, at most `limit`; pages are fetched as they are needed."""
        where = {"state": state, "user": user, "tier": tier, "label": label, "array_id": array_id}
        return paged("/v1/jobs", "cursor", "next_cursor", limit, **where)

    @Method
    def cancel(self, job_id: str) -> Script[Job]:
        """Wish that the job ends; it is CANCELLED once its gang has stopped."""
        return call("POST", _path(job_id, "/cancel"), may_repeat=True)

    @Method
    def cancel_many(
        self,
        ids: Sequence[str] | None = None,
        *,
        label: str | None = None,
        array_id: str | None = None,
        keep: Sequence[str] = (),
    ) -> Script[Cancelled]:
        """Wish that all jobs end that fit, but those to keep; in one transaction."""
        body = {"ids": None if ids is None else list(ids), "label": label, "array_id": array_id, "keep": list(keep)}
        return call("POST", "/v1/jobs:batchCancel", may_repeat=True, json=body)

    @Method
    def pause(self, job_id: str) -> Script[Job]:
        """Wish that the job stops after a checkpoint and waits."""
        return call("POST", _path(job_id, "/pause"), may_repeat=True)

    @Method
    def resume(self, job_id: str) -> Script[Job]:
        """Wish that a paused job goes on."""
        return call("POST", _path(job_id, "/resume"), may_repeat=True)

    @Method
    def edit(
        self,
        job_id: str,
        *,
        weight: float | None = None,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        version: int | None = None,
    ) -> Script[Job]:
        """Change what is given; `labels` replace all. With `version`: 412 if somebody changed the job since."""
        wish = {"weight": weight, "priority": priority, "labels": None if labels is None else dict(labels)}
        body = {name: value for name, value in wish.items() if value is not None}
        headers = {"If-Match": "*" if version is None else f'W/"{version}"'}
        return call("PATCH", _path(job_id), json=body, headers=headers)

    @Method
    def wait(self, job_id: str, timeout_s: float | None = None) -> Script[Job]:
        """The job once it has ended. Raises TimeoutError after `timeout_s`; survives restarts of the service."""
        give_up_at_s = time.monotonic() + (timeout_s if timeout_s is not None else 1e12)
        pauses = iter(WAIT_PAUSES_S)
        while True:
            job: Job = yield from _patiently(_path(job_id))
            if job["state"] in TERMINAL_STATES:
                return job
            pause_s = next(pauses, 1.0)
            if time.monotonic() + pause_s > give_up_at_s:
                raise TimeoutError(f"job {job_id} is {job['state']} after {timeout_s} s")
            yield Pause(pause_s)

    @Method
    def logs(self, job_id: str, offset: int = 0, limit_bytes: int = LOG_LIMIT_BYTES) -> Script[tuple[str, int]]:
        """Log text from a byte offset, which counts from the job's first line, and the offset to ask for next."""
        content, next_offset = yield from log_chunk(_path(job_id, "/logs"), offset, limit_bytes)
        return content.decode("utf-8", "replace"), next_offset

    @Listing
    def events(self, job_id: str) -> Items[Event]:
        """The job's story, oldest first."""
        after = 0
        while (page := (yield from get(_path(job_id, "/events"), after=after)))["items"]:
            for each in page["items"]:
                yield Item(each)
            after = page["next_after"]

    @Listing
    def audit(
        self, *, job_id: str | None = None, user: str | None = None, subject: str | None = None, limit: int = 50
    ) -> Items[AuditEntry]:
        """Decisions, newest first: about one job of yours; without `job_id` everybody's, for operators."""
        path = "/v1/audit" if job_id is None else _path(job_id, "/audit")
        return paged(path, "before", "next_before", limit, user=user, subject=subject)


def _path(job_id: str, rest: str = "") -> str:
    return f"/v1/jobs/{part(job_id)}{rest}"


def _submitted(path: str, body: Mapping[str, Any], key: str | None) -> Script[Any]:
    return call("POST", path, may_repeat=True, json=body, headers={"Idempotency-Key": key or str(uuid4())})


def _patiently(path: str) -> Script[Any]:
    """What a path answers, also from a service that is being started again, or says that it is busy."""
    give_up_at_s = time.monotonic() + RESTART_S
    while True:
        try:
            return (yield from get(path))
        except (ServiceUnreachable, GavelApiError) as error:
            is_refused = isinstance(error, GavelApiError) and error.status not in (429, 503)
            if is_refused or time.monotonic() > give_up_at_s:
                raise
        yield Pause(1.0)
