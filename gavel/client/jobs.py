"""The clients' calls about jobs."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack
from uuid import uuid4

from gavel.client.answers import AuditEntry, Cancelled, Endpoint, Event, Job, JobBatch, Purged, Reservation, TargetGroup
from gavel.client.bodies import JobResubmit, JobSubmit, VersionOfService
from gavel.client.errors import GavelApiError, ServiceUnreachable
from gavel.client.events import LOG_LIMIT_BYTES, log_chunk
from gavel.client.script import Item, Items, Listing, Method, Pause, Script, call, get, listed, paged, part

TERMINAL_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
RESTART_S = 60.0  # seconds that a waiting client tries to reach a lost service
WAIT_PAUSES_S = (0.1, 0.15, 0.25, 0.4, 0.6)  # seconds between requests while waiting for a job; then one second


class JobCalls:
    """Calls about jobs, part of both clients."""

    @Method
    def submit(self, *, idempotency_key: str | None = None, **job: Unpack[JobSubmit]) -> Script[Job]:
        """Submit a job. After a lost connection it is repeated with the same key, so the job is submitted once."""
        return _submitted(
            "/v1/jobs", {name: value for name, value in job.items() if value is not None}, idempotency_key
        )

    @Method
    def resubmit(
        self, job_id: str, *, idempotency_key: str | None = None, **changes: Unpack[JobResubmit]
    ) -> Script[Job]:
        """Submit a job again with some fields changed; `env` adds variables. Repeated safely, as `submit`."""
        return _submitted(_path(job_id, "/resubmit"), dict(changes), idempotency_key)

    @Method
    def submit_batch(self, jobs: Sequence[JobSubmit], *, idempotency_key: str | None = None) -> Script[JobBatch]:
        """Submit many jobs, all or none. After a lost connection it is repeated with the same key."""
        return _submitted("/v1/jobs/batch", {"jobs": [dict(job) for job in jobs]}, idempotency_key)

    @Method
    def submit_array(
        self,
        job: JobSubmit,
        *,
        parameters: Mapping[str, Sequence[str]] | None = None,
        count: int | None = None,
        idempotency_key: str | None = None,
    ) -> Script[JobBatch]:
        """Submit a job for each combination of parameters (set in env, put for `{NAME}` in argv), or `count` times."""
        body: dict[str, Any] = {"job": dict(job)}
        body |= {"count": count} if parameters is None else {"parameters": {k: list(v) for k, v in parameters.items()}}
        return _submitted("/v1/jobs/array", body, idempotency_key)

    @Method
    def job(self, job_id: str) -> Script[Job]:
        """Return one job."""
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
        match: str | None = None,
        limit: int | None = None,
    ) -> Items[Job]:
        """Yield jobs, newest first, at most `limit`. Pages are fetched as they are needed.

        `match`: the beginning of an id, or a name.
        """
        where = {"state": state, "user": user, "tier": tier, "label": label, "array_id": array_id, "match": match}
        return paged("/v1/jobs", "cursor", "next_cursor", limit, **where)

    @Method
    def cancel(self, job_id: str) -> Script[Job]:
        """Request that the job ends. It is CANCELLED once its gang has stopped."""
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
        """Request, in one transaction, that all jobs end which match the filter, except those to keep."""
        body = {"ids": None if ids is None else list(ids), "label": label, "array_id": array_id, "keep": list(keep)}
        return call("POST", "/v1/jobs/cancel", may_repeat=True, json=body)

    @Method
    def pause(self, job_id: str) -> Script[Job]:
        """Request that the job stops after a checkpoint and waits until it is resumed."""
        return call("POST", _path(job_id, "/pause"), may_repeat=True)

    @Method
    def resume(self, job_id: str) -> Script[Job]:
        """Request that a paused job goes on from its checkpoint."""
        return call("POST", _path(job_id, "/resume"), may_repeat=True)

    @Method
    def purge(self, job_id: str) -> Script[Purged]:
        """Delete an ended job with all that it has left. It is not repeated: a second time there is no such job."""
        return call("POST", _path(job_id, "/purge"))

    @Method
    def edit(  # noqa: PLR0913  one for each field that may be changed
        self,
        job_id: str,
        *,
        weight: float | None = None,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        replicas: int | None = None,
        replicas_min: int | None = None,
        replicas_max: int | None = None,
        demand: float | Literal["measured"] | None = None,
        rate: float | Mapping[str, float] | None = None,
        headroom: float | None = None,
        new_version: VersionOfService | None = None,
        version: int | None = None,
    ) -> Script[Job]:
        """Change the given fields; `labels` replace all labels. With `version`: 412 if the job was changed since.

        The others are of a service: `replicas` and their bounds, `demand` and `rate` in requests per second,
        `headroom`, and `new_version`, its program.
        """
        change: dict[str, Any] = {
            "weight": weight,
            "priority": priority,
            "labels": None if labels is None else dict(labels),
        }
        change |= {"replicas": replicas, "replicas_min": replicas_min, "replicas_max": replicas_max}
        change |= {"demand": demand, "headroom": headroom, "new_version": new_version}
        change["rate"] = dict(rate) if isinstance(rate, Mapping) else rate
        body = {name: value for name, value in change.items() if value is not None}
        headers = {"If-Match": "*" if version is None else f'W/"{version}"'}
        return call("PATCH", _path(job_id), json=body, headers=headers)

    @Method
    def endpoints(self, job_id: str) -> Script[list[Endpoint]]:
        """Return where the replicas of a service that are ready are reached."""
        answer: dict[str, list[Endpoint]] = yield from get(_path(job_id, "/endpoints"))
        return answer["items"]

    @Method
    def scrape_targets(self, job_id: str) -> Script[list[TargetGroup]]:
        """Return the same as `endpoints` in the form of Prometheus' HTTP service discovery."""
        return get(_path(job_id, "/endpoints/prometheus"))

    @Method
    def extend_session(self, job_id: str, *, by_s: float, version: int | None = None) -> Script[Job]:
        """Let an interactive session last longer; 412 if the job was changed since `version`, or since this call."""
        if version is None:
            version = (yield from get(_path(job_id)))["version"]
        headers = {"If-Match": f'W/"{version}"'}
        longer: Job = yield from call("POST", _path(job_id, "/extend"), json={"by_s": by_s}, headers=headers)
        return longer

    @Method
    def reservations(self) -> Script[list[Reservation]]:
        """Return the workers that sessions have reserved, those that begin first first; others' without their job."""
        return listed("/v1/reservations")

    @Method
    def wait(self, job_id: str, timeout_s: float | None = None) -> Script[Job]:
        """Return the job once it has ended, also over restarts of the service. Raise TimeoutError after `timeout_s`."""
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
        """Return log text from a byte offset, counted from the job's first line, and the next offset to ask for."""
        content, next_offset = yield from log_chunk(_path(job_id, "/logs"), offset, limit_bytes)
        return content.decode("utf-8", "replace"), next_offset

    @Listing
    def events(self, job_id: str) -> Items[Event]:
        """Yield the job's history, oldest first."""
        after = 0
        while (page := (yield from get(_path(job_id, "/events"), after=after)))["items"]:
            for each in page["items"]:
                yield Item(each)
            after = page["next_after"]

    @Listing
    def audit(
        self, *, job_id: str | None = None, user: str | None = None, subject: str | None = None, limit: int = 50
    ) -> Items[AuditEntry]:
        """Yield decisions, newest first: about one job of yours; without `job_id` all of them, for operators."""
        path = "/v1/audit" if job_id is None else _path(job_id, "/audit")
        return paged(path, "before", "next_before", limit, user=user, subject=subject)


def _path(job_id: str, rest: str = "") -> str:
    return f"/v1/jobs/{part(job_id)}{rest}"


def _submitted(path: str, body: Mapping[str, Any], key: str | None) -> Script[Any]:
    return call("POST", path, may_repeat=True, json=body, headers={"Idempotency-Key": key or str(uuid4())})


def _patiently(path: str) -> Script[Any]:
    """Return the answer of a path. Wait for a service that restarts or says that it is busy."""
    give_up_at_s = time.monotonic() + RESTART_S
    while True:
        try:
            return (yield from get(path))
        except (ServiceUnreachable, GavelApiError) as error:
            is_refused = isinstance(error, GavelApiError) and error.status not in (429, 503)
            if is_refused or time.monotonic() > give_up_at_s:
                raise
        yield Pause(1.0)
