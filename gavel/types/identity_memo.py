"""Keeps the newest answers of a function of large objects."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class IdentityMemo(Generic[Answer]):
    """Returns `make(*things)`, once for the same objects; the answers for the `kept` newest ones are kept.

    Objects are compared by identity, because comparing 100,000 jobs is slow, too; they must not change.
    """

    def __init__(self, make: Callable[..., Answer], kept: int = 2) -> None:
        self._make, self._most = make, kept
        self._kept: tuple[tuple[tuple[Any, ...], Answer], ...] = ()

    def __call__(self, *things: object) -> Answer:
        """Return the answer for these objects."""
        for kept, answer in self._kept:
            if len(kept) == len(things) and all(one is other for one, other in zip(kept, things, strict=True)):
                return answer
        answer = self._make(*things)
        self._kept = ((things, answer), *self._kept)[: self._most]
        return answer
