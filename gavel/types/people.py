"""Who asks: users, their tiers, and what a token may do."""

from dataclasses import dataclass
from enum import StrEnum

from gavel.types.jobs import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A group of users with an objective of its own. `guarantee` is a fraction of every accelerator type, in [0, 1]."""

    name: str
    weight: float = 1.0
    objective: str = "fairness"
    guarantee: float = 0.0
    parent: str | None = None
    version: int = 1


class Scope(StrEnum):
    """What a bearer token may do."""

    OPERATOR = "operator"
    USER = "user"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who holds a token. `job_id` is set for tokens of scope JOB only."""

    user: str
    scope: Scope
    tiers: tuple[str, ...] = ()
    job_id: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user and the tiers it may submit to; the first is the default."""

    name: str
    tiers: tuple[str, ...]
