"""Tiers, users and tokens."""

from typing import Literal

from pydantic import Field

from api.schemas.fields import Name, ObjectiveName, Request, View, example


class TierPut(Request):
    """A tier's rules."""

    model_config = example(weight=2.0, objective="fairness", guarantee=0.25)

    weight: float = Field(1.0, ge=1e-3, le=1e3, description="Share of the cluster, relative to the other tiers.")
    objective: ObjectiveName = Field("fairness", description="Objective inside the tier; one with a target curve.")
    guarantee: float = Field(
        0.0, ge=0, le=1, description="Fraction of every accelerator type the tier can always reach."
    )


class TierView(View):
    """A tier; `version` is its ETag."""

    name: str
    weight: float
    objective: str
    guarantee: float
    version: int


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


class UserList(View):
    """Sorted by name."""

    items: list[UserView]


class TokenCreate(Request):
    """What a new token may do."""

    scope: Literal["user", "operator"] = "user"


class TokenCreated(View):
    """A new bearer token: shown once, only its digest is kept."""

    user: str
    scope: str
    token: str
