"""The files of the state folder that give access to the service: the operator's token, the job tokens' key, the URL."""

import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

from gavel.backends import machine
from gavel.backends.durable import write_durable
from gavel.ports import ApiStore, Clock
from gavel.types import Job, JobId, Scope, User
from gavel.types.people import OPERATOR

TOKEN_FILE = "operator.token"  # noqa: S105  a file's name
SERVICE_FILE = "service.json"
SECRET_FILE = "job-tokens.key"  # noqa: S105  a file's name


class JobTokens:
    """Bearer tokens of scope JOB, derived from a secret in the state folder: a relaunched gang gets the same token."""

    def __init__(self, store: ApiStore, state_dir: Path, clock: Clock) -> None:
        path = state_dir / SECRET_FILE
        if not path.exists():
            write_private(path, secrets.token_hex(32), replace=False)
        self._secret = bytes.fromhex(path.read_text())
        self._store, self._clock = store, clock

    def __call__(self, jobs: Sequence[Job]) -> Mapping[JobId, str]:
        """Return the jobs' tokens, and store the digests that the store lacks, all at once.

        Also of a job that was launched before: the leader, and so the secret, may have changed.
        """
        tokens = {job.id: self._token(job.id) for job in jobs}
        digests = {sha256(tokens[job.id].encode()).hexdigest(): job for job in jobs}
        if digests:
            self._store.add_job_tokens(digests, now_s=self._clock.now_s())
        return tokens

    def _token(self, job_id: JobId) -> str:
        return "gavel_job_" + hmac.digest(self._secret, job_id.encode(), "sha256").hex()


def operator_token(store: ApiStore, state_dir: Path, now_s: float) -> str:
    """Return the operator's token: the one in its file if it is still valid, else a new one."""
    path = state_dir / TOKEN_FILE
    kept = path.read_text().strip() if path.exists() else ""
    if kept and store.identify(sha256(kept.encode()).hexdigest()):
        return kept
    token = secrets.token_urlsafe(32)
    tiers = tuple(tier.name for tier in store.tiers())
    store.put_user(User(name=OPERATOR, tiers=tiers), by=OPERATOR, now_s=now_s)
    store.add_token(sha256(token.encode()).hexdigest(), user=OPERATOR, scope=Scope.OPERATOR, now_s=now_s)
    write_private(path, token)
    return token


class Address:
    """`service.json`: the URL that commands on this machine use. Of several processes, it names the one that leads.

    A command that reads it finds the operator's token beside it, so nothing is written before `offer`.
    """

    def __init__(self, state_dir: Path, url: str) -> None:
        self._path = state_dir / SERVICE_FILE
        self._url = url
        self._lock = Lock()  # the scheduler's thread claims, the main thread offers
        self._is_offered = self._leads = False

    def offer(self) -> None:
        """Write this process's URL; unless it leads, only if the file names no other process that is running."""
        with self._lock:
            self._is_offered = True
            named = self._named()
            if self._leads or named is None or not machine.exists(named):
                self._write()

    def claim(self) -> None:
        """Write this process's URL and pid, as the one that leads: at once, or as soon as it is offered."""
        with self._lock:
            self._leads = True
            if self._is_offered:
                self._write()

    def withdraw(self) -> None:
        """Remove the file if it names this process."""
        if self._named() == os.getpid():
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        write_private(self._path, json.dumps({"url": self._url, "pid": os.getpid()}))

    def _named(self) -> int | None:
        with suppress(FileNotFoundError, ValueError, KeyError):
            return int(json.loads(self._path.read_text())["pid"])
        return None


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file atomically, readable by this user only; with `replace=False` an existing file stays as it is."""
    write_durable(path, text.encode(), replace=replace)
