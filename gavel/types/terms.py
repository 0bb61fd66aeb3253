"""The time for which one process leads the scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The term of a leader: of two terms with the same `database` the one with the higher generation is newer.

    `database` is an identifier of letters and digits that the database generated for itself.
    """

    database: str
    generation: int
