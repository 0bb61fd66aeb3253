"""The files of the state folder that give access to the service: the operator's token, the job tokens' key, the URL."""

import hmac
import json
import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

import psutil

from gavel.backends.durable import write_durable
from gavel.ports import ApiStore, Clock
from gavel.types import Job, Scope, User

OPERATOR = "operator"
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

    def __call__(self, job: Job) -> str:
        """Return the job's token, and store its digest if the store lacks it."""
        token = "gavel_job_" + hmac.digest(self._secret, job.id.encode(), "sha256").hex()
        digest = sha256(token.encode()).hexdigest()
        # `attempt` counts the launch in progress. Before a later one, the leader, and so the secret, may have changed.
        if job.attempt <= 1 or self._store.identify(digest) is None:
            now_s = self._clock.now_s()
            self._store.add_token(digest, user=job.spec.user, scope=Scope.JOB, job_id=job.id, now_s=now_s)
        return token


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
        """Write this process's URL, unless the file names another process that runs and this one does not lead."""
        with self._lock:
            self._is_offered = True
            named = self._named()
            if self._leads or named is None or not psutil.pid_exists(named):
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
