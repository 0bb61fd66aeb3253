"""Which uid the jobs of each user run as."""

from collections.abc import Sequence
from typing import Protocol


class JobUserStore(Protocol):
    """The uids that were given to users. What a call wrote is committed when it returns."""

    def uid_of(self, user: str, uids: Sequence[int]) -> int:
        """Return the uid of the user's jobs: the one that the user has, else the first of `uids` that nobody has had.

        It is the user's for ever. Raises LimitReached if all of `uids` are given.
        """
