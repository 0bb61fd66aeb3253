"""A job's output folder on one node: brought there before its gang starts, and stored at a URL while and after it runs.

A gang starts with all files that are stored, and its end is told once all of its own are stored, so that the next gang
finds them on any node. Only what has changed is copied, either way. Beside the folder JOB is `.JOB.json`: which files
are here as they are stored. It is written last, and without it nothing is stored: after a fetch that was cut off what
is here says nothing about what the job has deleted.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.gang import GangKey
from gavel.backends.job_folder import content, entries, open_file
from gavel.backends.machine import read_object
from gavel.backends.nodes.remote_outputs import CHUNK_BYTES, RemoteFile, RemoteOutputs, is_inside
from gavel.backends.nodes.transfers import Transfers
from gavel.backends.preparation import POLL_S, locked
from gavel.types import JobId

STORE_EVERY_S = 30.0
STORE_LIMIT_S = 1800.0  # seconds after the end of a gang; then its files count as lost
STORED = "outputs.stored"

Local = list[int]
"""Size, and times of the last changes of content and status: what tells that a file here is another one now."""


class OutputSync:
    """Keeps the folder `outputs` of the gang `key` and its files at `url` the same. `gang` is the gang's directory."""

    def __init__(self, key: GangKey, *, url: str, outputs: Path, gang: Path, transfers: Transfers) -> None:
        self._key, self._url, self._transfers = key, url, transfers
        self._folder, self._done = outputs, gang / STORED
        self._record = outputs.with_name(f".{outputs.name}.json")
        self._turn = 0
        self._due_boottime_s = 0.0
        self._ended_boottime_s = 0.0
        self._is_given_up = False

    def is_here(self) -> bool:
        """Return True once all stored files are on this node. Raises any exception if they cannot be fetched."""
        return self._transfers.done((*self._key, "outputs", "fetch"), self._fetch)

    def look(self) -> None:
        """Store what has changed, in the background and seldom; what fails is tried again with the next turn."""
        if machine.boottime_s() < self._due_boottime_s:
            return
        name = (*self._key, "outputs", self._turn)
        with suppress(Exception):  # of whichever storage this is
            if not self._transfers.done(name, self._store):
                return
        self._transfers.forget(lambda each: each == name)
        self._turn += 1
        self._due_boottime_s = machine.boottime_s() + STORE_EVERY_S

    def is_stored(self) -> bool:
        """Return True once everything is stored, after the end of the gang. Raises any exception if it cannot be."""
        now_s = machine.boottime_s()
        self._ended_boottime_s = self._ended_boottime_s or now_s
        if self._done.exists():
            return True
        self._is_given_up = self._is_given_up or now_s - self._ended_boottime_s > STORE_LIMIT_S
        if self._is_given_up:
            raise TimeoutError(f"it took more than {STORE_LIMIT_S:g} s")
        if not self._transfers.done((*self._key, "outputs", "last"), self._store):
            return False
        machine.write_json(str(self._done), {})
        return True

    # --- in a thread of the transfers ---

    @contextmanager
    def _alone(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Keep others from the folder: an earlier gang of the job may still be at a fetch. Raises TimeoutError."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while not is_over():
            with locked(str(self._folder.with_name(f".{self._folder.name}"))) as lock:
                if lock is not None:
                    yield
                    return
            time.sleep(POLL_S)
        raise TimeoutError("its gang is over")

    def _fetch(self) -> None:
        """Make the folder what is stored. What is here unchanged is kept, the rest is fetched."""
        with self._alone(lambda: bool(self._ended_boottime_s)):
            self._fetch_all()

    def _fetch_all(self) -> None:
        remote, job_id = RemoteOutputs(self._url), self._key[0]
        stored, synced, present = remote.files(job_id), self._synced() or {}, self._present()
        self._record.unlink(missing_ok=True)
        fresh = self._folder.with_name(f".{self._folder.name}.fetching")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        for path, file in stored.items():
            if self._ended_boottime_s:
                raise TimeoutError("its gang is over")
            target = fresh / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.tag and path in present and synced.get(path) == [*present[path], file.tag]:
                (self._folder / path).rename(target)
            else:
                with remote.open(job_id, path) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy, CHUNK_BYTES)
        self._replace(fresh)
        self._write({path: [*local, stored[path].tag] for path, local in self._present().items()})

    def _replace(self, fresh: Path) -> None:
        if self._folder.is_symlink():  # the job's doing
            self._folder.unlink()
        shutil.rmtree(self._folder, ignore_errors=True)
        fresh.rename(self._folder)

    def _store(self) -> None:
        """Store what was changed here since the folder was fetched or stored, and delete what was deleted here."""
        with self._alone(lambda: self._is_given_up):  # the last turn begins after the gang's end, and every other turn
            synced = self._synced()
            if synced is not None:
                self._store_changes(synced)

    def _store_changes(self, synced: dict[str, list[Any]]) -> None:
        remote, present = RemoteOutputs(self._url), self._present()
        changed = [path for path, local in present.items() if synced.get(path, [])[:3] != local]
        gone = [path for path in synced if path not in present and not os.path.lexists(self._folder / path)]
        try:
            for path in changed:
                self._put(remote, path, synced)
            for path in gone:
                remote.remove(self._key[0], path)
                del synced[path]
        finally:
            if changed or gone:
                self._write(_tagged(synced, changed, remote.files(self._key[0])))

    def _put(self, remote: RemoteOutputs, path: str, synced: dict[str, list[Any]]) -> None:
        """Store one file as it is now; one that is gone by now, or cannot be read, is left out."""
        if self._is_given_up:
            raise TimeoutError("its output files are not stored any more")
        try:
            file = open_file(str(self._folder), path)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            return
        try:
            status = os.fstat(file)
            remote.put(self._key[0], path, content(file, status.st_size))
        finally:
            os.close(file)
        synced[path] = [*_local(status), ""]

    # --- what is here ---

    def _present(self) -> dict[str, Local]:
        there = entries(str(self._folder))
        return {path: _local(status) for path, status in there if stat.S_ISREG(status.st_mode) and _has_name(path)}

    def _synced(self) -> dict[str, list[Any]] | None:
        """Return the files that are here as they are stored; None if it is not known, or was before power was lost."""
        record = read_object(self._record) or {}
        if record.get("boot_id") != machine.boot_id():
            return None
        return {path: list(each) for path, each in record["files"].items() if is_inside(path)}

    def _write(self, files: dict[str, list[Any]]) -> None:
        record = {"boot_id": machine.boot_id(), "files": files}
        machine.write_json(str(self._record), record)


def clear_outputs(root: Path, live: Collection[JobId], before_s: float) -> None:
    """Delete the output folders of jobs that run nothing here and have not since `before_s`: they are stored."""
    for path in root.iterdir() if root.is_dir() else ():
        job_id = path.name.removeprefix(".").partition(".")[0]
        if job_id not in live and path.lstat().st_mtime < before_s:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _tagged(synced: dict[str, list[Any]], changed: list[str], stored: dict[str, RemoteFile]) -> dict[str, list[Any]]:
    """Return the record with the tags of the files that were stored just now."""
    fresh = {path: [*synced[path][:3], stored[path].tag] for path in changed if path in stored and path in synced}
    return synced | fresh


def _local(status: os.stat_result) -> Local:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _has_name(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
