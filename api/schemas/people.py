"""Tiers, users and tokens."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from api.schemas.fields import TEXT_PATTERN, Name, ObjectiveName, Priority, Request, View, example


class TierPut(Request):
    """A tier's rules."""

    model_config = example(weight=2.0, objective="fairness", guarantee=0.25)

    weight: float = Field(1.0, ge=1e-3, le=1e3, description="Share of the cluster, relative to the other tiers.")
    objective: ObjectiveName = Field("fairness", description="Objective inside the tier; one with a target curve.")
    within_user: ObjectiveName = Field(
        "fast", description="How the jobs of one user share what the user has, where the objective is fairness."
    )
    guarantee: float = Field(
        0.0, ge=0, le=1, description="Fraction of every accelerator type the tier can always reach."
    )
    cap: float = Field(1.0, gt=0.001, le=1, description="Fraction of every type that it does not exceed over time.")
    default_priority: Priority = Field(0, description="Of jobs that state none; the most that a user may state.")
    max_jobs: int | None = Field(None, ge=0, le=10**6, description="Unfinished jobs; null: no limit.")
    accelerator_hours_per_month: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="Hours on slower types count less, in proportion to the job's speed there; null: no limit.",
    )
    budget_usd_per_month: float | None = Field(None, ge=0, le=1e9, description="By the workers' prices.")
    non_preemptible_workers: int | None = Field(
        None, ge=0, le=10**6, description="Workers that jobs which may not be preempted hold together; null: no limit."
    )
    session_longest_s: float | None = Field(
        None, ge=60, le=31_536_000, description="Seconds an interactive session may last at most; null: 12 hours."
    )
    parent: Name | None = Field(
        None, description="The tier that this one is below, and shares with; null: the cluster."
    )

    @model_validator(mode="after")
    def _reaches_what_it_is_promised(self) -> Self:
        if self.guarantee > self.cap:
            raise ValueError(f"a guarantee of {self.guarantee:g} is above the cap of {self.cap:g}; lower one")
        return self


class TierView(View):
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


class UsageView(View):
    """What a tier used in a month (UTC), beside its limits."""

    tier: str
    month: str
    accelerator_hours: float = Field(description="Relative to each job's fastest type.")
    accelerator_hours_per_month: float | None
    cost_usd: float
    budget_usd_per_month: float | None
    worker_hours: float = Field(description="Time on workers, of whatever type.")
    lost_gangs: int = Field(description="How many gangs were lost with their nodes in that time.")
    unfinished_jobs: int
    max_jobs: int | None


class TierList(View):
    """Sorted by name."""

    items: list[TierView]


class UserPut(Request):
    """The tiers a user may submit to; the first is the default."""

    model_config = example(tiers=["gold", "default"])

    tiers: list[Name] = Field(min_length=1, max_length=64)


class UserView(View):
    """A user and its tiers."""

    name: str
    tiers: list[str]


class UserLinkPut(Request):
    """The person at the OpenID provider who is to log in as the user."""

    model_config = example(subject="248289761001")

    subject: Annotated[str, StringConstraints(pattern=TEXT_PATTERN, min_length=1, max_length=255)] = Field(
        description="The provider's own key of the person; the login page shows it to whom it refuses."
    )


class UserLinkView(View):
    """Who at the OpenID provider logs in as the user."""

    user: str
    issuer: str
    subject: str


class UserList(View):
    """Sorted by name."""

    items: list[UserView]


class TokenCreate(Request):
    """What a new token may do."""

    scope: Literal["user", "operator", "viewer", "node"] = "user"


class BearerTokenView(View):
    """A bearer token, without the secret."""

    id: str = Field(description="The start of its SHA-256, in hex.")
    user: str
    scope: str
    created_at_s: float
    job_id: str | None = Field(description="The job whose programs hold it, scope `job`; it ends with the job.")


class TokenList(View):
    """Oldest first."""

    items: list[BearerTokenView]


class TokenCreated(View):
    """A new bearer token: shown once, only its digest is kept."""

    user: str
    scope: str
    token: str
