"""How many answers of one kind a user may have open at a time in this process, so that nobody takes all of them."""

import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress

from fastapi_problem.error import Problem

from api.http.errors import problem
from gavel.types import Identity, Scope

COME_AGAIN_S = 5


class UserShare:
    """At most `most` of what `what` names (a plural) for each user. Safe from any thread.

    A user's jobs count as the user; operators are bounded by what there is in all, since they can change it.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def check(self, caller: Identity) -> None:
        """Raise a 429 problem that says when to try again if the caller may not have one more now."""
        if caller.scope is not Scope.OPERATOR and self._open[caller.user] >= self._most:
            raise problem(
                429,
                f"you have {self._most} {self._what} open, as many as one user may have; close one first",
                headers={"Retry-After": str(COME_AGAIN_S)},
            )

    @contextmanager
    def held(self, caller: Identity) -> Iterator[None]:
        """Count one of the caller for the length of the block. Raise a 429 problem as `check` does."""
        with self._lock:
            self.check(caller)
            self._open[caller.user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[caller.user] -= 1
                if not self._open[caller.user]:
                    del self._open[caller.user]

    async def stream(self, caller: Identity, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the events, counted as one of the caller's from the first to the end.

        None come if others of the same user were faster since `check`: an answer that has begun cannot be a 429.
        """
        with suppress(Problem), self.held(caller):
            async with aclosing(events):
                async for event in events:
                    yield event
