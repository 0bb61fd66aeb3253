"""Inputs of jobs on this node: each is fetched once by its user and URL, and kept until its room is needed.

Standard library only: a part of the supervisor. Below the folder:

    KEY.lock            held by the process that fetches
    KEY/newest.json     {"ended", "version", "message"}: how many fetches have ended, and how the newest did
    KEY/VERSION.json    {"bytes"}: what the version takes, or will take
    KEY/VERSION.part/   what is being fetched; it never counts
    KEY/VERSION/NAME    a whole version: a file, or a folder of files. Its time says when it was used last
    room.lock           held while room is made
    jobs/JOB            {NAME: {"ended", "version"}}: what a job uses, and the fetches that had ended before it came
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from gavel.backends.machine import write_json
from gavel.backends.preparation import PreparationFailed, locked, read_record, scan
from gavel.code_tree import megabytes

PART, REMOVED = ".part", ".removed"


class Fetched(NamedTuple):
    """How many fetches of an input have ended; of the newest the version, or why it failed."""

    ended: int
    version: str
    message: str


class CachedInput:
    """What one user has fetched from one URL, by its place on this node."""

    def __init__(self, root: str, user: str, url: str) -> None:
        self.folder = os.path.join(root, hashlib.sha256(f"{user}\0{url}".encode()).hexdigest()[:32])
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def newest(self) -> Fetched:
        """Return how the newest fetch ended."""
        record = read_record(os.path.join(self.folder, "newest.json"))
        return Fetched(record.get("ended", 0), record.get("version", ""), record.get("message", ""))

    def record(self, version: str, message: str = "") -> None:
        """Note that a fetch ended: with a version, or with why it failed."""
        record = {"ended": self.newest().ended + 1, "version": version, "message": message}
        write_json(os.path.join(self.folder, "newest.json"), record)

    def place(self, version: str) -> str:
        """Return the folder of a version."""
        return os.path.join(self.folder, version)

    def hold(self, version: str) -> int | None:
        """Return a descriptor that keeps a whole version from removal while it is open; None if it is not there."""
        path = self.place(version)
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with suppress(BlockingIOError, FileNotFoundError):  # it is being removed
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(folder), os.stat(path)):
                os.utime(path)
                return folder
        os.close(folder)
        return None

    def begin(self, version: str) -> str:
        """Return the empty folder to fetch a version into; what was cut off before is removed."""
        _remove_parts(self.folder)
        part = self.place(version) + PART
        os.mkdir(part, mode=0o700)
        return part

    def finish(self, version: str) -> None:
        """Make what was fetched count, whole and on the disk."""
        for folder, _, names in os.walk(self.place(version) + PART):
            for path in (*(os.path.join(folder, name) for name in names), folder):
                _sync(path)
        os.rename(self.place(version) + PART, self.place(version))
        _sync(self.folder)


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Version(NamedTuple):
    """A version on this node, whole or being fetched."""

    path: str
    size_bytes: int
    used_at_ns: int
    is_whole: bool


class Room:
    """Keeps all inputs of a node within `limit_bytes`: the least recently used go, but none that a gang holds."""

    def __init__(self, root: str, limit_bytes: int) -> None:
        self._root, self._limit_bytes = root, limit_bytes

    def reserve(self, path: str, size_bytes: int) -> None:
        """Take room for all of a version, which is fetched to `path`. Raises PreparationFailed if there is none."""
        if size_bytes > self._limit_bytes:
            limit = megabytes(self._limit_bytes)
            raise PreparationFailed(f"it has {megabytes(size_bytes)} or more; a node keeps {limit} (data_cache_bytes)")
        with self._only_one():
            others = [each for each in _versions(self._root) if each.path != path]
            unused = iter(sorted((each for each in others if each.is_whole), key=lambda each: each.used_at_ns))
            used_bytes = sum(each.size_bytes for each in others)
            while used_bytes + size_bytes > self._limit_bytes or self._free_bytes(path) < size_bytes:
                oldest = next(unused, None)
                if oldest is None:
                    raise PreparationFailed(self._no_room(size_bytes, used_bytes, path))
                used_bytes -= oldest.size_bytes if _remove(oldest.path) else 0
            write_json(path + ".json", {"bytes": size_bytes})

    def _no_room(self, size_bytes: int, used_bytes: int, path: str) -> str:
        if used_bytes + size_bytes > self._limit_bytes:
            left = megabytes(max(0, self._limit_bytes - used_bytes))
            return (
                f"there is no room for its {megabytes(size_bytes)}: {left} of {megabytes(self._limit_bytes)} "
                "(data_cache_bytes) are in use by no running job; try again later"
            )
        return f"there is no room for its {megabytes(size_bytes)}: the disk has {megabytes(self._free_bytes(path))}"

    def _free_bytes(self, path: str) -> int:
        """Return what the disk has left, with what was fetched to `path` already."""
        part = path + PART
        fetched = sum(
            os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(part) for name in names
        )
        return shutil.disk_usage(self._root).free + fetched

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        with open(os.path.join(self._root, "room.lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _versions(root: str) -> Iterator[Version]:
    """Yield what is kept and what is being fetched; remove what was cut off."""
    for each in scan(root):
        if not each.is_dir() or each.name == "jobs":
            continue
        with locked(each.path) as lock:
            if lock is not None:
                _remove_parts(each.path)
            yield from [_version(record.path) for record in scan(each.path) if _is_size(record.name)]


def _is_size(name: str) -> bool:
    return name.endswith(".json") and name != "newest.json"


def _version(record: str) -> Version:
    path = record.removesuffix(".json")
    used_at_ns = os.stat(path).st_mtime_ns if os.path.isdir(path) else 0
    return Version(path, read_record(record).get("bytes", 0), used_at_ns, bool(used_at_ns))


def _remove_parts(folder: str) -> None:
    """Remove what was cut off, whether it was being fetched or removed. The input is locked."""
    for each in scan(folder):
        if each.name.endswith((PART, REMOVED)):
            shutil.rmtree(each.path, ignore_errors=True)
    for each in scan(folder):
        if _is_size(each.name) and not os.path.isdir(each.path.removesuffix(".json")):
            os.unlink(each.path)


def _remove(path: str) -> bool:
    """Remove a version unless a gang holds it; return whether it is gone."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(path, path + REMOVED)
    except BlockingIOError:
        return False
    finally:
        os.close(folder)
    shutil.rmtree(path + REMOVED, ignore_errors=True)
    os.unlink(path + ".json")
    return True


def version_of(files: object) -> str:
    """Return the name of a version: the digest of what says that it is another one."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:32]
