"""The Python client: a typed, synchronous wrapper of the REST API. Needs httpx, and nothing else of Gavel.

    with Client("http://127.0.0.1:8080", token) as gavel:
        job = gavel.submit(kind="mlp-b256", total_steps=500)
        print(gavel.wait(job["id"])["state"])

Answers are the API's JSON objects as they came, typed in answers.py; /docs explains every field.
"""

import codecs
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, Unpack, cast
from urllib.parse import quote

import httpx

from gavel.client.answers import (
    Allocation,
    AllocationRow,
    AuditEntry,
    Cancelled,
    Cluster,
    Deadline,
    Estimator,
    Event,
    Job,
    JobBatch,
    Lease,
    Node,
    Operation,
    Round,
    Submission,
    Throughput,
    Throughputs,
    Tier,
    TierLimits,
    Usage,
    User,
    Worker,
)
from gavel.client.nodes import NodeCalls
from gavel.client.resources import ResourceCalls

__all__ = [
    "Allocation",
    "AllocationRow",
    "AuditEntry",
    "Cancelled",
    "Client",
    "Cluster",
    "Deadline",
    "Estimator",
    "Event",
    "GavelApiError",
    "Job",
    "JobBatch",
    "Lease",
    "Node",
    "Operation",
    "Round",
    "ServiceUnreachable",
    "Submission",
    "Throughput",
    "Throughputs",
    "Tier",
    "TierLimits",
    "Usage",
    "User",
    "Worker",
]

TERMINAL_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
ATTEMPTS = 5  # of a call that may be repeated safely; pauses of 0.1, 0.2, 0.4, 0.8 s between them
PAGE_LIMIT = 200
LOG_LIMIT_BYTES = 65_536


class GavelApiError(Exception):
    """The service refused. `status` is HTTP's; `field` names the part of the input that was wrong, if any was."""

    def __init__(self, status: int, title: str, detail: str = "", field: str | None = None) -> None:
        where = f"{field}: " if field and not detail.startswith(field) else ""
        super().__init__(f"{title} ({status}): {where}{detail}" if detail else f"{title} ({status})")
        self.status = status
        self.title = title
        self.detail = detail
        self.field = field


class ServiceUnreachable(Exception):
    """No answer came: nothing listens there, or the connection broke or was too slow."""


class Client(NodeCalls, ResourceCalls):
    """Calls one Gavel service as the holder of one token. Not for sharing between threads."""

    def __init__(self, url: str, token: str, timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- jobs

    def submit(self, *, idempotency_key: str | None = None, **job: Unpack[Submission]) -> Job:
        """Submit a job. Repeated on lost connections under one key, so that it is submitted once."""
        body = {name: value for name, value in job.items() if value is not None}
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return cast(Job, self._call("POST", "/v1/jobs", attempts=ATTEMPTS, json=body, headers=headers))

    def submit_batch(self, jobs: Sequence[Submission], *, idempotency_key: str | None = None) -> JobBatch:
        """Submit many jobs, all or none; repeated on lost connections under one key."""
        return self._submit_many("/v1/jobs:batch", {"jobs": [dict(job) for job in jobs]}, idempotency_key)

    def submit_array(
        self,
        job: Submission,
        *,
        parameters: Mapping[str, Sequence[str]] | None = None,
        count: int | None = None,
        idempotency_key: str | None = None,
    ) -> JobBatch:
        """Submit a job for each combination of parameters (set in env, put for `{NAME}` in argv), or `count` times."""
        body: dict[str, Any] = {"job": dict(job)}
        body |= {"count": count} if parameters is None else {"parameters": {k: list(v) for k, v in parameters.items()}}
        return self._submit_many("/v1/jobs:array", body, idempotency_key)

    def _submit_many(self, path: str, body: Mapping[str, Any], key: str | None) -> JobBatch:
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return cast(JobBatch, self._call("POST", path, attempts=ATTEMPTS, json=body, headers=headers))

    def job(self, job_id: str) -> Job:
        """One job."""
        return cast(Job, self._get(f"/v1/jobs/{_part(job_id)}"))

    def jobs(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        tier: str | None = None,
        label: str | None = None,
        array_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Job]:
        """Jobs, newest first, at most `limit`; pages are fetched as they are needed."""
        query: dict[str, Any] = {"state": state, "user": user, "tier": tier, "label": label, "array_id": array_id}
        wanted = limit if limit is not None else 2**63
        while wanted > 0:
            page = self._get("/v1/jobs", **query, limit=min(wanted, PAGE_LIMIT))
            yield from page["items"]
            wanted -= len(page["items"])
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    def cancel(self, job_id: str) -> Job:
        """Wish that the job ends; it is CANCELLED once its gang has stopped."""
        return cast(Job, self._call("POST", f"/v1/jobs/{_part(job_id)}/cancel", attempts=ATTEMPTS))

    def cancel_many(
        self,
        ids: Sequence[str] | None = None,
        *,
        label: str | None = None,
        array_id: str | None = None,
        keep: Sequence[str] = (),
    ) -> Cancelled:
        """Wish that all jobs end that fit, but those to keep; in one transaction."""
        body = {"ids": None if ids is None else list(ids), "label": label, "array_id": array_id, "keep": list(keep)}
        return cast(Cancelled, self._call("POST", "/v1/jobs:batchCancel", attempts=ATTEMPTS, json=body))

    def pause(self, job_id: str) -> Job:
        """Wish that the job stops after a checkpoint and waits."""
        return cast(Job, self._call("POST", f"/v1/jobs/{_part(job_id)}/pause", attempts=ATTEMPTS))

    def resume(self, job_id: str) -> Job:
        """Wish that a paused job goes on."""
        return cast(Job, self._call("POST", f"/v1/jobs/{_part(job_id)}/resume", attempts=ATTEMPTS))

    def edit(
        self,
        job_id: str,
        *,
        weight: float | None = None,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        version: int | None = None,
    ) -> Job:
        """Change what is given; `labels` replace all. With `version`: 412 if somebody changed the job since."""
        wish = {"weight": weight, "priority": priority, "labels": None if labels is None else dict(labels)}
        body = {name: value for name, value in wish.items() if value is not None}
        headers = {"If-Match": "*" if version is None else f'W/"{version}"'}
        return cast(Job, self._call("PATCH", f"/v1/jobs/{_part(job_id)}", json=body, headers=headers))

    def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has ended. Raises TimeoutError after `timeout_s`; survives restarts of the service."""
        give_up_at_s = time.monotonic() + (timeout_s if timeout_s is not None else 1e12)
        pause_s = 0.1
        while True:
            job = self.job(job_id)
            if job["state"] in TERMINAL_STATES:
                return job
            if time.monotonic() + pause_s > give_up_at_s:
                raise TimeoutError(f"job {job_id} is {job['state']} after {timeout_s} s")
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 1.5)

    def logs(self, job_id: str, offset: int = 0, limit_bytes: int = LOG_LIMIT_BYTES) -> tuple[str, int]:
        """Log text from a byte offset, which counts from the job's first line, and the offset to ask for next."""
        content, next_offset = self._log_bytes(job_id, offset, limit_bytes)
        return content.decode("utf-8", "replace"), next_offset

    def read_logs(self, job_id: str, offset: int = 0, *, follow: bool = False, poll_s: float = 0.5) -> Iterator[str]:
        """Log text to the end of what is there now; `follow`: as it is written, until the job has ended."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            no_more_comes = not follow or self.job(job_id)["state"] in TERMINAL_STATES  # asked before the log
            content, next_offset = self._log_bytes(job_id, offset, LOG_LIMIT_BYTES)
            is_drained = next_offset == offset
            yield decoder.decode(content, final=is_drained and no_more_comes)
            if is_drained and no_more_comes:
                return
            if is_drained:
                time.sleep(poll_s)
            offset = next_offset

    def events(self, job_id: str) -> Iterator[Event]:
        """The job's story, oldest first."""
        after = 0
        while items := (page := self._get(f"/v1/jobs/{_part(job_id)}/events", after=after, limit=PAGE_LIMIT))["items"]:
            yield from items
            after = page["next_after"]

    # --- tiers, users, tokens

    def tiers(self) -> list[Tier]:
        """All tiers, by name."""
        return cast(list[Tier], self._get("/v1/tiers")["items"])

    def put_tier(
        self,
        name: str,
        *,
        weight: float = 1.0,
        objective: str = "fairness",
        guarantee: float = 0.0,
        version: int | None = None,
        **limits: Unpack[TierLimits],
    ) -> Tier:
        """Replace the tier if it still has `version`; None: create it. 412 if somebody was faster."""
        headers = {"If-None-Match": "*"} if version is None else {"If-Match": f'"{version}"'}
        body = {"weight": weight, "objective": objective, "guarantee": guarantee, **limits}
        return cast(Tier, self._call("PUT", f"/v1/tiers/{_part(name)}", json=body, headers=headers))

    def usage(self, tier: str, month: str | None = None) -> Usage:
        """What the tier used in a month (`2026-11`, UTC; None: this one), beside its limits."""
        return cast(Usage, self._get(f"/v1/tiers/{_part(tier)}/usage", month=month))

    def audit(
        self, *, job_id: str | None = None, user: str | None = None, subject: str | None = None, limit: int = 50
    ) -> Iterator[AuditEntry]:
        """Decisions, newest first: about one job of yours; without `job_id` everybody's, for operators."""
        path = "/v1/audit" if job_id is None else f"/v1/jobs/{_part(job_id)}/audit"
        before: int | None = None
        while limit > 0:
            page = self._get(path, user=user, subject=subject, before=before, limit=min(limit, PAGE_LIMIT))
            yield from page["items"]
            limit -= len(page["items"])
            if (before := page["next_before"]) is None:
                return

    def users(self) -> list[User]:
        """All users, by name."""
        return cast(list[User], self._get("/v1/users")["items"])

    def put_user(self, name: str, tiers: Sequence[str]) -> User:
        """Create or replace a user; the first tier is its default."""
        return cast(User, self._call("PUT", f"/v1/users/{_part(name)}", json={"tiers": list(tiers)}))

    def create_token(self, user: str, scope: str = "user") -> str:
        """A new bearer token of scope `user` or `operator`; there is no way to see it again."""
        return str(self._call("POST", f"/v1/users/{_part(user)}/tokens", json={"scope": scope})["token"])

    # --- what the scheduler does

    def allocations(self) -> Allocation:
        """The newest allocation: the target of each job beside what it received."""
        return cast(Allocation, self._get("/v1/allocations/current"))

    def throughputs(self) -> Throughputs:
        """Steps per second by job kind and accelerator type."""
        return cast(Throughputs, self._get("/v1/throughputs"))

    def estimator(self) -> Estimator:
        """Throughputs with intervals and sources, also of types not measured yet, and statements beside facts."""
        return cast(Estimator, self._get("/v1/estimator"))

    def rounds(self, *, before: int | None = None, limit: int = 40) -> list[Round]:
        """Rounds, newest first."""
        return cast(list[Round], self._get("/v1/rounds", before=before, limit=limit)["items"])

    def cluster(self) -> Cluster:
        """Nodes and workers."""
        return cast(Cluster, self._get("/v1/cluster"))

    def policies(self) -> dict[str, Any]:
        """Policies that the service can be configured with, and the objectives a tier may have."""
        return cast(dict[str, Any], self._get("/v1/policies"))

    def health(self) -> str:
        """`ok` when the store answers and the scheduler is alive."""
        return str(self._get("/readyz")["status"])

    # --- transport

    def _get(self, path: str, **query: Any) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        return self._call("GET", path, attempts=ATTEMPTS, params=given)

    def _call(self, method: str, path: str, **request: Any) -> Any:
        answer = self._send(method, path, **request)
        if (parsed := _parsed(answer)) is None:
            raise GavelApiError(answer.status_code, "The answer is not Gavel's", f"is {self.url} the right address?")
        return parsed

    def _log_bytes(self, job_id: str, offset: int, limit_bytes: int) -> tuple[bytes, int]:
        query = {"offset": offset, "limit": limit_bytes}
        answer = self._send("GET", f"/v1/jobs/{_part(job_id)}/logs", attempts=ATTEMPTS, params=query)
        return answer.content, int(answer.headers["X-Next-Offset"])

    def _send(self, method: str, path: str, *, attempts: int = 1, **request: Any) -> httpx.Response:
        for attempt in range(attempts):
            try:
                answer = self._http.request(method, path, **request)
                break
            except httpx.TransportError as error:
                if attempt == attempts - 1:
                    raise ServiceUnreachable(f"no answer from {self.url}: {error}") from error
                time.sleep(0.1 * 2**attempt)
        if answer.is_error:
            raise _refusal(answer)
        return answer


def _refusal(answer: httpx.Response) -> GavelApiError:
    """The problem document (RFC 9457) as an exception; any other body as its text."""
    match _parsed(answer):
        case {"title": str(title), "detail": str(detail), "errors": [{"field": str(field)}, *_]}:
            return GavelApiError(answer.status_code, title, detail, field)
        case {"title": str(title), "detail": str(detail)}:
            return GavelApiError(answer.status_code, title, detail)
    return GavelApiError(answer.status_code, answer.reason_phrase or "refused", answer.text[:500])


def _parsed(answer: httpx.Response) -> Any:
    """The body as JSON; None when it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def _part(name: str) -> str:
    """One segment of a path, whatever was typed."""
    return quote(name, safe="")
