"""The inputs of a job: files and folders that it only reads. What has a URL is fetched once for each node and version.

Standard library only: a part of the supervisor. A process of its own fetches (input_fetch.py).
"""

import os
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from gavel.backends.input_cache import CachedInput
from gavel.backends.output import Log
from gavel.backends.preparation import POLL_S, PreparationFailed, job_record, locked, start_detached
from gavel.backends.unix_users import lend, uid_of

_HELD: list[int] = []  # descriptors of the versions that this supervisor's gang reads, open until it ends


def variable_of(name: str) -> str:
    """Return the environment variable that has the place of an input."""
    return f"GAVEL_DATA_{name.upper()}"


def local_path(source: str) -> str:
    """Return the path of an input that is used where it is; "" for one that is fetched."""
    if source.startswith("file:///"):
        return unquote(urlsplit(source).path)
    return source if source.startswith("/") else ""


def file_name(url: str) -> str:
    """Return the name that what is fetched has on the node: the last part of the URL's path."""
    last = re.sub(r"[^\w.+-]", "_", unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]), flags=re.ASCII)[:200]
    return last if last.strip(".") else "content"


def wait_for_inputs(launch: dict[str, Any], directory: str, log: Log, is_over: Callable[[], bool]) -> bool:
    """Have the inputs fetched that are not there, and tell the ranks where each is; False if the lease ends first.

    Of several gangs that want one input one starts the fetch and all wait; it goes on when the lease ends.
    Raises PreparationFailed, OSError.
    """
    data = launch["data"]
    with job_record(data["root"], launch["job_id"], dict) as record:
        for name, source in data["sources"].items():
            if path := local_path(source):
                _check_is_there(name, path, launch)
                mounted = path
            else:
                cached = CachedInput(data["root"], launch["user"], source)
                used = record.setdefault(name, {"ended": cached.newest().ended, "version": ""})
                if not Wait(name, source, cached, used, log).until(is_over, directory):
                    return False
                mounted = cached.place(used["version"])
                path = os.path.join(mounted, file_name(source))
                lend(mounted, uid_of(launch), data["root"])
            _tell(launch, name, path, mounted)
    return True


def _check_is_there(name: str, path: str, launch: dict[str, Any]) -> None:
    if not os.path.exists(path):
        node = launch["ranks"][0]["env"]["GAVEL_NODE"]
        raise PreparationFailed(f"its input {name}: there is no {path} on node {node}; correct --data {name}=PATH")


def _tell(launch: dict[str, Any], name: str, path: str, mounted: str) -> None:
    """Set the variable of an input for every rank; in an image its folder is there under the same path, read-only."""
    for rank in launch["ranks"]:
        rank["env"][variable_of(name)] = path
    if launch["image"]:
        launch["image"]["folders"].setdefault(mounted, "ro")


class Wait:
    """A gang's wait for one input. `used` is what its job uses: a version that is there, or the next to be fetched."""

    def __init__(self, name: str, url: str, cached: CachedInput, used: dict[str, Any], log: Log) -> None:
        self._name, self._url, self._cached, self._used, self._log = name, url, cached, used, log
        self._has_begun = False

    def until(self, is_over: Callable[[], bool], directory: str) -> bool:
        """Return True once the input is there and held, False once the lease is over."""
        while not is_over():
            if self._used["version"] and self._is_held():
                return True
            with locked(self._cached.folder) as lock:
                if lock is not None and not self._is_fetched():
                    self._begin(directory, lock)
            time.sleep(0 if self._used["version"] else POLL_S)
        return False

    def _is_held(self) -> bool:
        """Hold the version that the job uses; if it has been removed meanwhile, have the input fetched again."""
        held = self._cached.hold(self._used["version"])
        if held is not None:
            _HELD.append(held)
            return True
        self._used.update(ended=self._cached.newest().ended, version="")
        self._has_begun = False
        return False

    def _is_fetched(self) -> bool:
        """Take the version of a fetch that has ended since the job came. Raises PreparationFailed if it failed."""
        ended, version, message = self._cached.newest()
        if ended <= self._used["ended"]:
            return False
        if message:
            raise PreparationFailed(f"its input {self._name} could not be fetched: {message}")
        self._used["version"] = version
        self._say("is there")
        return True

    def _begin(self, directory: str, lock: int) -> None:
        if self._has_begun:
            raise OSError(f"the fetch of its input {self._name} was cut off")
        self._say("is fetched")
        start_detached([], "input_fetch.py", [directory, self._name], lock)
        self._has_begun = True

    def _say(self, what: str) -> None:
        self._log.write(f"[data] {self._name} {what}: {self._url.partition('?')[0]}\n".encode())
