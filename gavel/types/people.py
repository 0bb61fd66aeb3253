"""Users, their tiers, and the scopes of tokens."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import prod

from gavel.types.jobs import JobId

SECONDS_PER_HOUR = 3600.0  # of usage and of prices, which are by the hour
SESSION_LONGEST_S = 12 * 3600.0  # of a tier that does not say how long an interactive session may last


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A group of users with an objective of its own, and its limits (None: none).

    `guarantee` and `cap` are fractions of every accelerator type, in [0, 1]: what the tier can always reach, and what
    it does not exceed over time. `default_priority` is that of jobs that state none, and the most a user may state.
    `max_jobs` are unfinished ones. `non_preemptible_workers` are those that its jobs which may not be preempted, and
    those of the tiers below, hold together. `session_longest_s` is the most seconds that an interactive session may
    last, SESSION_LONGEST_S where it is None. Accelerator hours count relative to the job's fastest type; both monthly
    limits run from the first of a month, UTC.
    """

    name: str
    weight: float = 1.0
    objective: str = "fairness"
    within_user: str = "fast"
    guarantee: float = 0.0
    cap: float = 1.0
    default_priority: int = 0
    max_jobs: int | None = None
    accelerator_hours_per_month: float | None = None
    budget_usd_per_month: float | None = None
    non_preemptible_workers: int | None = None
    session_longest_s: float | None = None
    parent: str | None = None
    version: int = 1

    @property
    def session_limit_s(self) -> float:
        """Return the most seconds that an interactive session of its users may last."""
        return SESSION_LONGEST_S if self.session_longest_s is None else self.session_longest_s


def chain_of(name: str, tiers: Mapping[str, Tier]) -> list[str]:
    """Return the tier and those above it, as far as `tiers` has them."""
    chain: list[str] = []
    above: str | None = name
    while above is not None and above in tiers and above not in chain:
        chain.append(above)
        above = tiers[above].parent
    return chain


def shares_by_weight(tiers: Mapping[str, Tier], used: Collection[str]) -> dict[str, float]:
    """Return each tier's share of the cluster by weights alone: its part among its siblings, times that of its parent.

    Siblings count if they, or a tier below them, are in `used`: the tiers that have jobs.
    """
    chains = {name: chain_of(name, tiers) for name in tiers}
    siblings_weight: dict[str | None, float] = {}
    for name in {above for each in used for above in chains.get(each, ())}:
        siblings_weight[tiers[name].parent] = siblings_weight.get(tiers[name].parent, 0.0) + tiers[name].weight
    return {
        name: prod(tiers[each].weight / siblings_weight.get(tiers[each].parent, tiers[each].weight) for each in chain)
        for name, chain in chains.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a tier used in a month (`2026-11`, UTC), or a part of that. `lost_gangs` of them were on lost nodes.

    `worker_hours` are plain ones; `accelerator_hours` are relative to each job's fastest type.
    """

    tier: str
    month: str
    accelerator_hours: float = 0.0
    cost_usd: float = 0.0
    worker_hours: float = 0.0
    lost_gangs: int = 0

    def plus(self, more: "Usage") -> "Usage":
        """Return this usage with what another part of the same month adds."""
        return replace(self, **{name: getattr(self, name) + getattr(more, name) for name in AMOUNTS})


AMOUNTS = ("accelerator_hours", "cost_usd", "worker_hours", "lost_gangs")
"""The fields of Usage that are added up."""


def month_of(at_s: float) -> str:
    """Return the month that an instant is in, UTC: `2026-11`."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m")


OPERATOR = "operator"
"""The user whose token is in the state folder, where only the service's own account reads it."""


class Scope(StrEnum):
    """The scope of a bearer token: what it may do."""

    OPERATOR = "operator"
    USER = "user"
    JOB = "job"
    NODE = "node"  # reads nodes, takes them out of service and back; for programs that look after machines
    VIEWER = "viewer"  # reads what a user may read, and the metrics; changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who holds a token. `job_id` is set for tokens of scope JOB only."""

    user: str
    scope: Scope
    tiers: tuple[str, ...] = ()
    job_id: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """A token that a user holds, without its secret: `id` is the start of its SHA-256, in hex."""

    id: str
    user: str
    scope: Scope
    created_at_s: float
    job_id: JobId | None = None  # of scope JOB: whose


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A secret of a user, without its value."""

    name: str
    updated_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user and the tiers it may submit to; the first is the default."""

    name: str
    tiers: tuple[str, ...]
