"""Fetches one input of a gang's job: `python -I -X utf8 input_fetch.py GANG_DIR NAME LOCK`.

See inputs.py. It has the lock from its beginning, and ends with the fetch. It keeps what comes, as the service's user;
a process of the job's user reads it from the server (input_reader.py). Standard library only.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

if __name__ == "__main__":  # run by path with -I: find the package from this file's folder
    sys.path.append(__file__.removesuffix("gavel/backends/input_fetch.py"))

from gavel.backends.input_cache import CachedInput, Room, version_of
from gavel.backends.input_reading import Changed, ReaderSource, Source, SourceFile, sentence_of
from gavel.backends.inputs import file_name
from gavel.backends.machine import read_json
from gavel.backends.output import Mask
from gavel.backends.preparation import PreparationFailed
from gavel.backends.preparing_program import end_all, make_folders
from gavel.backends.processes import begin, start_task
from gavel.backends.sandbox import Sandbox
from gavel.child_processes import adopt_orphans

NICENESS = 10  # what trains beside it goes first
RESERVED_BYTES = 1 << 26  # at a time, where nobody says how large the input is
AGAIN_S = 10.0


class Fetch:
    """One fetch: the version is looked up, and what is not there yet is copied. `unique` is no other fetch's."""

    def __init__(self, source: Source, cached: CachedInput, room: Room, name: str, unique: str) -> None:
        self._source, self._cached, self._room, self._name, self._unique = source, cached, room, name, unique
        self._path, self._fetched_bytes, self._reserved_bytes = "", 0, 0

    def run(self) -> str:
        """Return the version once it is whole. Raises PreparationFailed, Changed, and what libraries raise."""
        files = self._source.files()
        version = self._version(files)
        held = self._cached.hold(version)
        if held is not None:
            os.close(held)
            return version
        self._path = self._cached.place(version)
        part = self._cached.begin(version)
        self._reserve(sum(each.size_bytes or 0 for each in files))
        for each in files:
            self._copy(each, os.path.join(part, self._name, each.path) if each.path else os.path.join(part, self._name))
        if self._version(self._source.files()) != version:
            raise Changed("it changed while it was fetched")
        self._cached.finish(version)
        return version

    def _version(self, files: list[SourceFile]) -> str:
        """Return the version of these files; where nothing tells two contents apart it is new for each fetch."""
        unique = "" if all(each.tag for each in files) else self._unique
        return version_of([unique, [list(each) for each in files]])

    def _reserve(self, size_bytes: int) -> None:
        self._room.reserve(self._path, size_bytes)
        self._reserved_bytes = size_bytes

    def _copy(self, source: SourceFile, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        size_bytes = 0
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400), "wb") as file:
            for chunk in self._source.read(source):
                size_bytes += len(chunk)
                self._fetched_bytes += len(chunk)
                if self._fetched_bytes > self._reserved_bytes:
                    self._reserve(self._fetched_bytes + RESERVED_BYTES)
                file.write(chunk)
        if source.size_bytes not in (None, size_bytes):
            raise Changed(f"{size_bytes} of {source.size_bytes} bytes came")


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError in the block once it has taken so long, and again if a library takes no notice."""

    def end(*_: object) -> None:
        raise TimeoutError(f"it took longer than {limit_s:g} s (data_limit_s)")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def reader(launch: dict[str, Any], url: str, home: str) -> Iterator[Source]:
    """Yield what the URL names, read by a process of the job's user, which ends with the block.

    It is in a sandbox of its own where the job would have one, with nothing of the job but `home`, an empty folder.
    Raises PreparationFailed, OSError.
    """
    data = launch["data"]
    shutil.rmtree(home, ignore_errors=True)
    make_folders(launch, data["root"], home)
    wanted, requests = os.pipe2(os.O_CLOEXEC)
    start = begin
    if data["sandbox"]:
        view = {"sandbox": {**data["sandbox"], "tmp": home}, "own": {}, "named": {}, "cwd": home}
        start = Sandbox({**launch, **view}, {home: "rw"}).begin
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "input_reader.py")
    spec = {
        "task": "data",
        "argv": [sys.executable, "-I", "-X", "utf8", program],
        "cwd": home,
        "cpus": [],
        "env": {**data["env"], "HOME": home},
        "runs_as": launch["ranks"][0].get("runs_as"),
    }
    try:
        process = start_task(spec, start=lambda argv, cwd, given: start(argv, cwd, given, wanted))
        os.close(wanted)
        if process.problem:
            raise PreparationFailed(f"its reader could not start: {process.problem}")
        os.set_blocking(process.output, True)
        with open(process.output, "rb") as answers:
            yield ReaderSource(requests, answers, url, data["hosts"])
    finally:
        end_all()
        os.close(requests)
        shutil.rmtree(home, ignore_errors=True)


def fetch(launch: dict[str, Any], name: str) -> None:
    """Fetch the input of this name, and record how that ended."""
    data = launch["data"]
    url = data["sources"][name]
    cached = CachedInput(data["root"], launch["user"], url)
    room = Room(data["root"], data["cache_bytes"])
    version, message = "", ""
    try:
        with time_limit(data["limit_s"]), reader(launch, url, os.path.join(cached.folder, "home")) as source:
            unique = f"{launch['job_id']} {cached.newest().ended}"
            version = Fetch(source, cached, room, file_name(url), unique).run()
    except Exception as problem:  # whatever it is: its job ends with it, and others go on
        message = sentence_of(problem)
    cached.record(version, Mask(launch["secrets"].values()).text(message))


def main(directory: str, name: str) -> None:
    """Fetch for the gang of this directory."""
    launch = read_json(os.path.join(directory, "launch.json"))
    os.nice(NICENESS)
    adopt_orphans()
    fetch(launch, name)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[3]), False)
    main(sys.argv[1], sys.argv[2])
