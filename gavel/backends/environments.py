"""The virtual environment that a job's setup makes: built once for each content and node, then used by every gang.

Standard library only: a part of the supervisor. A process of its own builds (environment_build.py). Below the folder:

    DIGEST.lock          held by the process that builds
    DIGEST/built.json    {"folder"}: written last, so that what was cut off or failed never counts as built
    DIGEST/failed.json   {"count", "message"}: how often the setup has failed, and how the last time
    DIGEST/setup.log     what the newest build has printed
    DIGEST/NUMBER/       a virtual environment, where it was made: its programs name their own path
    jobs/JOB             {"digest", "failures", "shown"}: what a job uses, the failures that were there before it,
                         and how much of setup.log its own log has
"""

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from typing import Any

from gavel.backends.machine import write_json
from gavel.backends.output import Log
from gavel.backends.preparation import (
    POLL_S,
    PreparationFailed,
    forget_jobs,
    job_record,
    locked,
    read_record,
    scan,
    start_detached,
)

READ_BYTES = 1 << 16
HASHED_BYTES_MAX = 1 << 26
DEPENDENCY_FILES = (
    *("requirements*.txt", "requirements*.in", "constraints*.txt", "pyproject.toml", "setup.py", "setup.cfg"),
    *("uv.lock", "pylock*.toml", "poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", "environment.y*ml"),
)
WORD = re.compile(r"[^\s;&|<>()'\"=`]+")
INCLUDED = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", re.MULTILINE)


class Environment:
    """The environment of one content, by its place on this node."""

    def __init__(self, root: str, digest: str) -> None:
        self.digest = digest
        self.folder = os.path.join(root, digest)
        self.log_path = os.path.join(self.folder, "setup.log")
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def built(self) -> str:
        """Return the folder of the virtual environment; "" unless all of it was built."""
        folder = os.path.join(self.folder, str(self._read("built.json").get("folder", "none")))
        return folder if os.access(os.path.join(folder, "bin", "python"), os.X_OK) else ""

    def failure(self) -> tuple[int, str]:
        """Return how often its setup has failed, and how the last time."""
        record = self._read("failed.json")
        return int(record.get("count", 0)), str(record.get("message", ""))

    def make_folder(self) -> str:
        """Return the folder for a new build, after removing what earlier builds left."""
        numbers = [int(name) for name in os.listdir(self.folder) if name.isdigit()]
        for number in numbers:
            shutil.rmtree(os.path.join(self.folder, str(number)), ignore_errors=True)
        return os.path.join(self.folder, str(max(numbers, default=0) + 1))

    def record_built(self, folder: str) -> None:
        """Note that the folder holds all of the environment."""
        write_json(os.path.join(self.folder, "built.json"), {"folder": os.path.basename(folder)})

    def record_failure(self, message: str) -> None:
        """Note how the setup failed. Jobs that have asked for it before fail with that; a later job builds anew."""
        count, _ = self.failure()
        write_json(os.path.join(self.folder, "failed.json"), {"count": count + 1, "message": message})

    def _read(self, name: str) -> dict[str, Any]:
        return read_record(os.path.join(self.folder, name))


def _first_record(launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a new job. It keeps its environment for all its leases, whatever becomes of the files."""
    digest = content_digest(launch)
    return {"digest": digest, "failures": Environment(launch["setup"]["root"], digest).failure()[0], "shown": 0}


def wait_for_environment(launch: dict[str, Any], directory: str, log: Log, is_over: Callable[[], bool]) -> bool:
    """Have the environment built if it is not, and let `launch` use it; return False if the lease is over before that.

    Of several gangs with one content one starts the build and all wait; the build goes on when the lease ends. What it
    prints goes into the job's log. Raises PreparationFailed, OSError.
    """
    root = launch["setup"]["root"]
    with job_record(root, launch["job_id"], lambda: _first_record(launch)) as record:
        environment, has_begun = Environment(root, record["digest"]), False
        while not is_over():
            with locked(environment.folder) as lock:
                if lock is None or environment.built():
                    _show(environment, record, log)
                if lock is not None and (folder := environment.built()):
                    activate(launch, folder)
                    return True
                if lock is not None:
                    _check_not_failed(environment, record, log, has_begun)
                    _empty(environment.log_path)
                    record["shown"] = 0
                    start_detached(["-S"], "environment_build.py", [directory, environment.digest], lock)
                    has_begun = True
            time.sleep(POLL_S)
    return False


def activate_if_built(launch: dict[str, Any]) -> bool:
    """Let `launch` use the environment that its job has; return False if there is none yet."""
    root = launch["setup"]["root"]
    digest = read_record(os.path.join(root, "jobs", launch["job_id"])).get("digest")
    folder = Environment(root, digest).built() if digest else ""
    if folder:
        activate(launch, folder)
    return bool(folder)


def _empty(log_path: str) -> None:
    """Make the log of a new build: nobody takes what an earlier one has printed for it."""
    os.close(os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))


def _check_not_failed(environment: Environment, record: dict[str, Any], log: Log, has_begun: bool) -> None:
    count, message = environment.failure()
    if count > record["failures"]:
        _show(environment, record, log)
        raise PreparationFailed(message)
    if has_begun:
        raise OSError("its setup was cut off")


def _show(environment: Environment, record: dict[str, Any], log: Log) -> None:
    """Copy what the build has printed since the last look into the job's log."""
    with suppress(FileNotFoundError), open(environment.log_path, "rb") as file:
        if os.fstat(file.fileno()).st_size < record["shown"]:
            record["shown"] = 0  # of a newer build
        file.seek(record["shown"])
        while output := file.read(READ_BYTES):
            log.write(output)
            record["shown"] += len(output)


def activate(launch: dict[str, Any], folder: str) -> None:
    """Let every rank run in the environment: `python`, and everything that was installed."""
    python = os.path.join(folder, "bin", "python")
    if launch["python"] and launch["argv"][0] == launch["python"]:
        launch["argv"][0] = python
    launch["python"] = python
    for rank in launch["ranks"]:
        rank["env"] = activated(rank["env"], folder)


def activated(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the variables as the environment's `activate` would set them."""
    return {**env, "VIRTUAL_ENV": folder, "PATH": f"{folder}/bin:{env['PATH']}"}


# --- the content that names it ------------------------------------------------------------------------------------


def content_digest(launch: Mapping[str, Any]) -> str:
    """Return the digest of what an environment is made of.

    It is the user, the line, the variables that the setup gets (of secrets only the names), the interpreter, and the
    dependency files of the working directory.
    """
    setup = launch["setup"]
    kept = {name: value for name, value in setup["env"].items() if name != "HOME" and name not in launch["secrets"]}
    files = dependency_files(launch["cwd"], setup["text"])
    content = [launch["user"], setup["text"], kept, sorted(launch["secrets"]), _interpreter(launch["python"]), files]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _interpreter(python: str) -> list[str]:
    """Return what changes with another interpreter, and with another version at the same path."""
    path = os.path.realpath(python or sys.executable)
    status = os.stat(path)
    return [python or sys.executable, path, str(status.st_size), str(status.st_mtime_ns)]


def dependency_files(root: str, text: str) -> dict[str, str]:
    """Return the digest of each file that decides what is installed, by its path below `root`.

    These are the usual files of dependencies in the folder itself, files that the line names, and requirement files
    that these include.
    """
    wanted = [name for name in os.listdir(root) if any(fnmatch(name, each) for each in DEPENDENCY_FILES)]
    wanted += [word.removeprefix("-r").removeprefix("-c") for word in WORD.findall(text)]
    digests: dict[str, str] = {}
    while wanted:
        path = os.path.normpath(wanted.pop())
        content = b"" if path in digests else _content(os.path.join(root, path))
        if content:
            digests[path] = hashlib.sha256(content).hexdigest()
            if path.endswith((".txt", ".in")):
                lines = content.decode("utf-8", "replace")
                wanted += [os.path.join(os.path.dirname(path), name) for name in INCLUDED.findall(lines)]
    return dict(sorted(digests.items()))


def _content(path: str) -> bytes:
    """Return the content of a plain file, as far as it counts; b"" if it is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return b""
    with open(file, "rb") as opened:
        return opened.read(HASHED_BYTES_MAX)


# --- retention ----------------------------------------------------------------------------------------------------


def clear_environments(root: str, unfinished: Collection[str], before_s: float) -> None:
    """Delete the environments that no unfinished job uses, and that no job has used since `before_s`."""
    used = {record.get("digest") for record in forget_jobs(root, unfinished, before_s)}
    for each in scan(root):
        if each.is_dir() and each.name != "jobs" and each.name not in used and each.stat().st_mtime < before_s:
            with locked(each.path) as lock:
                if lock is not None:
                    shutil.rmtree(each.path, ignore_errors=True)
