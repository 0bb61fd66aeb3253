"""Brings code versions to a node: what its store lacks is asked for, checked, and kept in the background.

With each answer the agent names what it lacks, and with the next order it is given a pack of that: first the list of
the version's files, then chunks. So an answer or a pack that was lost costs a turn, and nothing waits for a transfer.
"""

import sys
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gavel.backends.code_store import CodeStore
from gavel.backends.nodes.protocol import CodeAsked, CodeGiven
from gavel.code_tree import digest_of, read_tree
from gavel.errors import InvalidRequest, NotFound

PACK_BYTES = 8 << 20
PACK_CHUNKS = 2048
READ_LIMIT_S = 60.0

Missing = dict[str, int]
"""Chunks that are not here, with their sizes in bytes."""


class CodeRefused(Exception):
    """A code version that this node cannot have whole. The text is the sentence for its user."""


@dataclass(slots=True)
class Fetch:
    """One version on its way here. `missing` is None while the list of its files is missing."""

    missing: Missing | None
    running: "Future[Missing | None] | None" = None

    def awaits(self, asked: CodeAsked) -> bool:
        """Return False for the answer to an earlier question: the list of files is here by now, or gone."""
        return bool(asked.chunks) is (self.missing is not None)


class CodeFetches:
    """The code versions of the gangs that wait on this node, brought into the store below `state_dir`."""

    def __init__(self, state_dir: Path) -> None:
        self._store = CodeStore(state_dir, limit_bytes=sys.maxsize, kept_s=0.0)  # the service has limited it
        self._fetches: dict[str, Fetch] = {}
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="gavel-code")

    def is_here(self, digest: str) -> bool:
        """Return whether all of the version is here; if not, it is asked for from now on.

        Raises CodeRefused, and OSError for a disk that is full or broken.
        """
        fetch = self._fetches.get(digest) or Fetch(self._missing(digest))
        self._fetches[digest] = fetch
        try:
            if fetch.running is not None and fetch.running.done():
                running, fetch.running = fetch.running, None
                fetch.missing = running.result()
        except BaseException:
            del self._fetches[digest]
            raise
        if fetch.missing != {} or fetch.running is not None:
            return False
        del self._fetches[digest]
        return True

    def asked(self, wanted: Collection[str]) -> tuple[CodeAsked, ...]:
        """Return what to ask for, of these versions; the others are not waited for any more."""
        for digest, fetch in list(self._fetches.items()):
            if digest not in wanted and fetch.running is None:
                del self._fetches[digest]
        idle = [(digest, fetch) for digest, fetch in self._fetches.items() if fetch.running is None]
        return tuple(CodeAsked(digest=digest, chunks=_portion(fetch.missing or {})) for digest, fetch in idle)

    def take(self, given: Iterable[CodeGiven]) -> None:
        """Check and keep what was asked for, in the background."""
        for each in given:
            fetch = self._fetches.get(each.asked.digest)
            if fetch is not None and fetch.running is None and fetch.awaits(each.asked):
                fetch.running = self._threads.submit(self._keep, each, fetch.missing)

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _missing(self, digest: str) -> Missing | None:
        try:
            return self._store.missing(digest)
        except (NotFound, ValueError):  # ValueError: power was lost while its list of files was new
            return None

    def _keep(self, given: CodeGiven, missing: Missing | None) -> Missing | None:
        """Keep one pack of what is missing; return what is missing still. Raises CodeRefused, OSError."""
        digest = given.asked.digest
        if given.problem or given.pack is None:
            raise CodeRefused(given.problem or f"nobody has code version {digest}")
        try:
            body = given.pack.read(READ_LIMIT_S)
        except Exception:  # whatever the transport raises when the one who gave it is gone: it is asked for again
            return missing
        try:
            if missing is None:
                self._keep_files(digest, body)
                return self._missing(digest)
            left = set(self._store.put_chunks(digest, body))
        except (InvalidRequest, NotFound) as problem:
            raise CodeRefused(f"code version {digest} arrived damaged: {problem}; submit the job again") from None
        return {chunk: size for chunk, size in missing.items() if chunk in left}

    def _keep_files(self, digest: str, text: bytes) -> None:
        if digest_of(text) != digest:
            raise InvalidRequest("files", "the list of its files is another one")
        self._store.put(read_tree(text))


def _portion(missing: Missing) -> tuple[str, ...]:
    """Return the first chunks that fit into one pack."""
    chosen: list[str] = []
    left = PACK_BYTES
    for chunk, size in missing.items():
        if size > left or len(chosen) == PACK_CHUNKS:
            break
        chosen.append(chunk)
        left -= size
    return tuple(chosen)
