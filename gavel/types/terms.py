"""The time for which one process leads the scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A generation of leaders of one database; of two terms with the same `database` the higher generation is newer.

    `database` is an identifier of letters and digits that the database gave itself.
    """

    database: str
    generation: int
