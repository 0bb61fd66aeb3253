"""A copy of all objects of one kind, kept by a watch: listed once, then told what changes."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from gavel.backends.kubernetes.api import Api, Object, Refused, items_of
from gavel.errors import BackendUnavailable

AGAIN_S = 1.0
GONE = 410

T = TypeVar("T")


class Watched(threading.Thread, Generic[T]):
    """The objects below a path, each as `read` makes it, by namespace and name. `changed` is called after changes.

    `problem`: why they are not known, or not any more; "" if they are. `count` grows with every change.
    """

    def __init__(self, api: Api, path: str, read: Callable[[Object], T], changed: Callable[[], None]) -> None:
        super().__init__(name=f"gavel-watch-{path.rsplit('/', 1)[-1]}", daemon=True)
        self._api, self._path, self._read, self._changed = api, path, read, changed
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._objects: dict[str, T] = {}
        self.has_listed = False
        self.problem = ""
        self.count = 0

    def objects(self) -> Mapping[str, T]:
        """Return the objects as they are known now."""
        with self._lock:
            return dict(self._objects)

    def close(self) -> None:
        """End the thread at its next event."""
        self._ends.set()

    def run(self) -> None:
        """Watch until it is closed; a watch that breaks goes on from where it was."""
        version = ""
        while not self._ends.is_set():
            try:
                version = version or self._list()
                version = self._follow(version)
                self.problem = ""
            except (Refused, BackendUnavailable) as problem:
                self.problem = str(problem)
                if isinstance(problem, Refused):
                    version = ""
                self._changed()
                self._ends.wait(AGAIN_S)

    def _list(self) -> str:
        listed = self._api.get(self._path, limit="0")
        objects = {key_of(each): self._read(each) for each in items_of(listed)}
        with self._lock:
            self._objects, self.has_listed, self.problem = objects, True, ""
            self.count += 1
        self._changed()
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        """Take events until the watch ends; return the version to go on from, "" if all must be listed again."""
        for event in self._api.watch(self._path, version):
            if self._ends.is_set():
                break
            kind, changed = event["type"], event["object"]
            if kind == "ERROR":
                return "" if changed.get("code") == GONE else version
            version = str(changed["metadata"]["resourceVersion"])
            if kind != "BOOKMARK":
                self._take(kind, changed)
        return version

    def _take(self, kind: str, changed: Mapping[str, Any]) -> None:
        key = key_of(changed)
        with self._lock:
            if kind == "DELETED":
                with suppress(KeyError):
                    del self._objects[key]
            else:
                self._objects[key] = self._read(changed)
            self.count += 1
        self._changed()


def key_of(each: Object) -> str:
    """Return NAMESPACE/NAME, or the name alone of what has no namespace."""
    names = each["metadata"]
    return f"{names['namespace']}/{names['name']}" if names.get("namespace") else str(names["name"])
