"""The catalogue, the policies, health."""

from typing import Literal

from pydantic import ConfigDict, Field

from api.schemas.fields import View


class CatalogueEntry(View):
    """A job kind that comes with Gavel, and the program it runs."""

    name: str
    description: str
    argv: list[str]


class CatalogueList(View):
    """Sorted by name."""

    items: list[CatalogueEntry]


class PolicyView(View):
    """A policy that can be configured. `parameters` by name, with their defaults as text."""

    name: str
    choose_when: str = Field(description="A sentence; empty for a policy of the operator's own that has none.")
    formula: str
    source: str
    parameters: dict[str, str]


class PolicyList(View):
    """Cluster-wide policies, the objectives a tier may have, and the orders within one user."""

    current: str
    items: list[PolicyView]
    tier_objectives: dict[str, str]
    within_user: dict[str, str] = Field(description="How the jobs of one user may share, by name of the order.")
    auto_objectives: dict[str, str] = Field(
        description="Tiers whose objective is `auto`, with the one that the policy in force gives each."
    )


class FindingView(View):
    """One thing that was looked at on the service's machine."""

    about: str
    verdict: Literal["ok", "note", "problem"] = Field(description="Fine, worth knowing, or to be mended.")
    text: str


class FindingList(View):
    """In the order in which they were looked at."""

    items: list[FindingView]


class Health(View):
    """`ok`: the process answers; ready also means that the store answers and the scheduler is alive."""

    model_config = ConfigDict(
        json_schema_serialization_defaults_required=False
    )  # the field is left out when it is empty

    status: str
    note: str = Field(
        default="", description="How this service's scheduler ended lately, or why no gang is started now."
    )
