"""The fetches of code from git that are under way in this process, and those that nobody has asked for since."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from gavel.backends.code_store import CodeStore
from gavel.backends.git_fetch import GitCode, GitLimits, git_code
from gavel.config import Settings
from gavel.errors import LimitReached

AT_A_TIME = 4
OF_A_USER = 4
KEPT = 100  # fetches whose outcome was not asked for
Key = tuple[str, str, str]


def git_limits(settings: Settings) -> GitLimits:
    """Return from where the service fetches code, and how much."""
    return GitLimits(
        schemes=tuple(settings.git_schemes.split()),
        hosts=tuple(settings.git_hosts.split()),
        limit_s=settings.git_limit_s,
        limit_bytes=settings.code_bytes,
        known_hosts=settings.git_known_hosts,
    )


class GitFetches:
    """Fetches in threads of their own, which do not keep the service from ending.

    Who asks again for one that is under way waits for the same.
    """

    def __init__(self, state_dir: Path, store: CodeStore, limits: GitLimits) -> None:
        self.limits = limits
        self._state_dir, self._store = state_dir, store
        self._places = threading.BoundedSemaphore(AT_A_TIME)
        self._lock = threading.Lock()
        self._of: dict[Key, Future[GitCode]] = {}

    def ask(self, user: str, url: str, ref: str, secrets: Mapping[str, str]) -> Future[GitCode]:
        """Return the fetch of a user, begun unless it is under way. Raises LimitReached for too many of theirs."""
        key = (user, url, ref)
        with self._lock:
            if (running := self._of.get(key)) is not None:
                return running
            if sum(each[0] == user and not fetch.done() for each, fetch in self._of.items()) >= OF_A_USER:
                raise LimitReached(
                    f"{OF_A_USER} fetches of code of yours are under way, which is the most; wait for one"
                )
            for each in [each for each, fetch in self._of.items() if fetch.done()][: len(self._of) - KEPT]:
                del self._of[each]
            fetch: Future[GitCode] = Future()
            self._of[key] = fetch
            threading.Thread(target=self._run, args=(fetch, *key, dict(secrets)), name="gavel-git", daemon=True).start()
            return fetch

    def _run(self, fetch: Future[GitCode], user: str, url: str, ref: str, secrets: Mapping[str, str]) -> None:
        try:
            with self._places:
                fetch.set_result(git_code(self._state_dir, self._store, self.limits, user, url, ref, secrets))
        except Exception as problem:
            fetch.set_exception(problem)

    def forget(self, user: str, url: str, ref: str) -> None:
        """Note that the outcome was answered: who asks later begins anew, as a branch may have moved."""
        with self._lock:
            fetch = self._of.pop((user, url, ref), None)
            if fetch is not None and not fetch.done():
                self._of[user, url, ref] = fetch
