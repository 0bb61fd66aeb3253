"""A cache of one answer that is slow to compute and the same for all who ask."""

import threading
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Memo(Generic[Answer]):
    """Keeps the newest answer of `make` for `kept_s` seconds at most, while it is asked about the very same objects.

    Others who ask meanwhile wait for it. Objects are compared by identity, because comparing 10,000 jobs is slow, too.
    """

    def __init__(self, make: Callable[..., Answer], *, kept_s: float = inf) -> None:
        self._make, self._kept_s = make, kept_s
        self._lock = threading.Lock()
        self._kept: tuple[tuple[object, ...], float, Answer] | None = None

    def of(self, *things: object, now_s: float | None = None) -> Answer:
        """Return `make(*things)`, or `make(*things, now_s)` if `now_s` is given, from the cache if possible."""
        at_s = 0.0 if now_s is None else now_s
        with self._lock:
            if self._kept is None or not self._answers(self._kept, things, at_s):
                answer = self._make(*things) if now_s is None else self._make(*things, now_s)
                self._kept = things, at_s, answer
            return self._kept[2]

    def _answers(self, kept: tuple[tuple[object, ...], float, Answer], things: tuple[object, ...], at_s: float) -> bool:
        of_things, since_s, _ = kept
        is_same = all(one is other for one, other in zip(of_things, things, strict=True))
        return is_same and since_s <= at_s < since_s + self._kept_s
