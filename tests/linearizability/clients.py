"""Five clients of the REST API at once: what each called, when, and what came back."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

import httpx

from tests.linearizability.checker import Operation
from tests.linearizability.models import REFUSED

CLIENTS = 5
LIMIT_S = 30.0
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
Key = tuple[str, str]


@dataclass
class Recorder:
    """The history so far, by what it is about. Safe from any thread."""

    history: dict[Key, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    ids: dict[str, str] = field(default_factory=dict)  # of jobs, by idempotency key
    operations: list[str] = field(default_factory=list)  # ids of acknowledged operations
    version: int = 1  # of the tier, as some client has seen it
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key: Key, operation: Operation) -> None:
        with self.lock:
            self.history[key].append(operation)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a history is made on: services that come and go, and names that only this history uses."""

    urls: Callable[[], Sequence[str]]
    token: str
    prefix: str
    blocker: str  # a job that never completes: those of the history wait for it
    node: str
    keys: int = 4


class HistoryClient:
    """One client: it calls what its chance says, at whichever service its chance says."""

    def __init__(self, target: Target, recorder: Recorder, seed: int) -> None:
        self._target, self._recorder = target, recorder
        self._chance = random.Random(seed)
        headers = {"Authorization": f"Bearer {target.token}"}
        self._http = httpx.Client(headers=headers, timeout=LIMIT_S)

    def run(self, calls: int) -> None:
        """Make so many calls."""
        with self._http:
            for _ in range(calls):
                with suppress(*NOT_SENT):  # a service that is gone refuses connections: the call did not happen
                    self._chance.choices((self._on_job, self._on_tier, self._on_node), (8, 2, 1))[0]()
                with self._recorder.lock:
                    self._recorder.calls += 1

    def _on_job(self) -> None:
        key = f"{self._target.prefix}-{self._chance.randrange(self._target.keys)}"
        job_id = self._recorder.ids.get(key)
        if job_id is None or self._chance.random() < 0.15:
            return self._submit(key)
        paused, weight = self._chance.random() < 0.5, float(self._chance.randint(1, 4))
        name, argument, method, path, body = self._chance.choices(
            (
                ("get", None, "GET", "", None),
                ("pause", paused, "POST", "/pause" if paused else "/resume", None),
                ("edit", weight, "PATCH", "", {"weight": weight}),
                ("cancel", None, "POST", "/cancel", None),
            ),
            (8, 5, 5, 1),
        )[0]
        self._call(
            ("job", key), name, method, f"/v1/jobs/{job_id}{path}", _job_shown, argument, body, {"If-Match": "*"}
        )
        return None

    def _submit(self, key: str) -> None:
        body = {"argv": ["sleep", "1"], "total_steps": 1, "after": [self._target.blocker]}
        shown = self._call(("job", key), "submit", "POST", "/v1/jobs", _submitted, None, body, {"Idempotency-Key": key})
        if shown is not None:
            self._recorder.ids[key] = shown[0]

    def _on_tier(self) -> None:
        key, path = ("tier", self._target.prefix), f"/v1/tiers/{self._target.prefix}"
        if self._chance.random() < 0.5:
            shown = self._call(key, "get", "GET", path, _tier_shown)
        else:
            version, weight = self._recorder.version, float(self._chance.randint(1, 9))
            match = {"If-Match": f'"{version}"'}
            shown = self._call(key, "put", "PUT", path, _tier_shown, (version, weight), {"weight": weight}, match)
        if isinstance(shown, tuple):
            self._recorder.version = shown[0]

    def _on_node(self) -> None:
        made = self._recorder.operations
        if made and self._chance.random() < 0.7:
            operation_id = self._chance.choice(made)
            self._call(("operation", operation_id), "get", "GET", f"/v1/operations/{operation_id}", _has_ended)
            return
        verb = self._chance.choice(("cordon", "uncordon"))
        answer = self._send("POST", f"/v1/nodes/{self._target.node}/{verb}", None, {})
        if answer is not None and answer.status_code in (200, 202):
            made.append(answer.json()["id"])

    def _call(
        self,
        key: Key,
        name: str,
        method: str,
        path: str,
        read: Callable[[httpx.Response], Any],
        argument: Any = None,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Make the call and record it; return what the answer shows, None without one."""
        called_s = time.monotonic()
        answer = self._send(method, path, body, headers or {})
        returned_s = time.monotonic() if answer is not None else inf
        result = None if answer is None else REFUSED if answer.status_code in (409, 412) else read(answer)
        operation = Operation(name=name, called_s=called_s, returned_s=returned_s, argument=argument, result=result)
        self._recorder.add(key, operation)
        return result

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx.Response | None:
        """Return the answer; None if it was lost, or says that the service cannot tell what has become of the call."""
        url = self._chance.choice(self._target.urls())
        try:
            answer = self._http.request(method, url + path, json=body, headers=headers)
        except NOT_SENT:
            raise
        except httpx.TransportError:
            return None
        return None if answer.status_code >= 500 else answer


def run_history(target: Target, *, calls: int, seed: int, when: Callable[[Recorder], None]) -> Recorder:
    """Return what clients recorded who made `calls` each at once; `when` is called in the middle of it."""
    recorder = Recorder()
    clients = [HistoryClient(target, recorder, seed * CLIENTS + number) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.run, args=(calls,)) for client in clients]
    for thread in threads:
        thread.start()
    when(recorder)
    for thread in threads:
        thread.join()
    return recorder


def _job_shown(answer: httpx.Response) -> tuple[str, bool, float, bool]:
    job = answer.json()
    if answer.status_code == 404:
        return ("", False, 1.0, False)
    return (job["id"], job["pause_requested"], job["weight"], job["state"] in ("CANCELLING", "CANCELLED"))


def _submitted(answer: httpx.Response) -> tuple[str, bool, float, bool, bool]:
    assert answer.status_code == 201, answer.text
    return (*_job_shown(answer), answer.headers.get("Idempotency-Replayed") == "true")


def _tier_shown(answer: httpx.Response) -> tuple[int, float]:
    assert answer.status_code in (200, 201), answer.text
    tier = answer.json()
    return (tier["version"], tier["weight"])


def _has_ended(answer: httpx.Response) -> bool | None:
    """Whether the operation has ended; None: there is none."""
    return None if answer.status_code == 404 else answer.json()["state"] != "pending"
