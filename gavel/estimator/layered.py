"""A large immutable mapping, of which a new version with a few changes costs little."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

TOP_MIN = 64  # up to so many changed entries the base is never copied


class Layered(Mapping[K, V]):
    """A base shared with older versions, and the entries that changed since, which come last in the order."""

    __slots__ = ("_base", "_length", "_top")

    def __init__(self, base: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(base or {})
        self._top: dict[K, V] = {}
        self._length = len(self._base)

    def __getitem__(self, key: K) -> V:
        return self._top[key] if key in self._top else self._base[key]

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # asked for a million times
        """Return the entry, or the default."""
        changed = self._top.get(key)
        return self._base.get(key, default) if changed is None else changed

    def __contains__(self, key: object) -> bool:
        return key in self._top or key in self._base

    def __iter__(self) -> Iterator[K]:
        return iter(self.flat())

    def __len__(self) -> int:
        return self._length

    def flat(self) -> dict[K, V]:
        """Return a plain copy, oldest entries first."""
        if not self._top:
            return dict(self._base)
        return {key: value for key, value in self._base.items() if key not in self._top} | self._top

    def changed(self, changes: Mapping[K, V]) -> "Layered[K, V]":
        """Return a version with these entries, the newest last; this one stays as it is."""
        if not changes:
            return self
        new: Layered[K, V] = Layered()
        new._base = self._base
        new._top = {key: value for key, value in self._top.items() if key not in changes} | dict(changes)
        new._length = self._length + sum(key not in self for key in changes)
        if len(new._top) ** 2 > max(TOP_MIN**2, len(self._base)):
            new._base, new._top = new.flat(), {}
        return new


class Draft(Generic[K, V]):
    """Collects the changes of the next version of a mapping."""

    def __init__(self, before: Layered[K, V]) -> None:
        self._before = before
        self.changes: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the newest entry; None without one."""
        return self.changes[key] if key in self.changes else self._before.get(key)

    def put(self, key: K, value: V) -> None:
        """Set an entry; the newest is last."""
        self.changes.pop(key, None)
        self.changes[key] = value

    def done(self) -> Layered[K, V]:
        """Return the version with all changes."""
        return self._before.changed(self.changes)
