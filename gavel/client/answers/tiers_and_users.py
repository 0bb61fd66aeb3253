"""What the API answers about tiers and users.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import TypedDict


class Tier(TypedDict):
    """A tier; `version` is its ETag."""

    name: str
    weight: float
    objective: str
    within_user: str
    guarantee: float
    cap: float
    default_priority: int
    max_jobs: int | None
    accelerator_hours_per_month: float | None
    budget_usd_per_month: float | None
    non_preemptible_workers: int | None
    session_longest_s: float | None
    parent: str | None
    version: int


class Usage(TypedDict):
    """What a tier used in a month (UTC), beside its limits."""

    tier: str
    month: str
    accelerator_hours: float  # Relative to each job's fastest type.
    accelerator_hours_per_month: float | None
    cost_usd: float
    budget_usd_per_month: float | None
    worker_hours: float  # Time on workers, of whatever type.
    lost_gangs: int  # How many gangs were lost with their nodes in that time.
    unfinished_jobs: int
    max_jobs: int | None


class User(TypedDict):
    """A user and its tiers."""

    name: str
    tiers: list[str]


class UserLink(TypedDict):
    """Who at the OpenID provider logs in as the user."""

    user: str
    issuer: str
    subject: str


class TokenCreated(TypedDict):
    """A new bearer token: shown once, only its digest is kept."""

    user: str
    scope: str
    token: str


class BearerToken(TypedDict):
    """A bearer token, without the secret."""

    id: str  # The start of its SHA-256, in hex.
    user: str
    scope: str
    created_at_s: float
    job_id: str | None  # The job whose programs hold it, scope `job`; it ends with the job.


class Secret(TypedDict):
    """A secret of a user, without its value."""

    name: str
    updated_at_s: float
