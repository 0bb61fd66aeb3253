"""What the API is sent about why and what if.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from gavel.client.bodies.jobs import JobSubmit


class NodesAdded(TypedDict):
    """Nodes that do not exist yet, all alike."""

    count: NotRequired[int]
    accelerator_type: str
    workers: NotRequired[int]  # Accelerators on each.


class TierPreview(TypedDict):
    """A tier's rules as they would be. A name that does not exist yet is a new tier."""

    weight: NotRequired[float]  # Share of the cluster, relative to the other tiers.
    objective: NotRequired[str]  # Objective inside the tier; one with a target curve.
    within_user: NotRequired[str]  # How the jobs of one user share what the user has, where the objective is fairness.
    guarantee: NotRequired[float]  # Fraction of every accelerator type the tier can always reach.
    cap: NotRequired[float]  # Fraction of every type that it does not exceed over time.
    default_priority: NotRequired[int]  # Of jobs that state none; the most that a user may state.
    max_jobs: NotRequired[int | None]  # Unfinished jobs; null: no limit.
    # Hours on slower types count less, in proportion to the job's speed there; null: no limit.
    accelerator_hours_per_month: NotRequired[float | None]
    budget_usd_per_month: NotRequired[float | None]  # By the workers' prices.
    # Workers that jobs which may not be preempted hold together; null: no limit.
    non_preemptible_workers: NotRequired[int | None]
    session_longest_s: NotRequired[float | None]  # Seconds an interactive session may last at most; null: 12 hours.
    parent: NotRequired[str | None]  # The tier that this one is below, and shares with; null: the cluster.
    name: str


class WhatIf(TypedDict):
    """What to try on the live state; what is left out stays as it is."""

    policy: NotRequired[str | None]  # A name of `GET /v1/policies`, with ?parameters and /parts.
    tiers: NotRequired[Sequence[TierPreview]]
    nodes_gone: NotRequired[Sequence[str]]
    nodes_added: NotRequired[Sequence[NodesAdded]]
    job: NotRequired[JobSubmit | None]  # One more job, submitted now.


class TierPut(TypedDict):
    """A tier's rules."""

    weight: NotRequired[float]  # Share of the cluster, relative to the other tiers.
    objective: NotRequired[str]  # Objective inside the tier; one with a target curve.
    within_user: NotRequired[str]  # How the jobs of one user share what the user has, where the objective is fairness.
    guarantee: NotRequired[float]  # Fraction of every accelerator type the tier can always reach.
    cap: NotRequired[float]  # Fraction of every type that it does not exceed over time.
    default_priority: NotRequired[int]  # Of jobs that state none; the most that a user may state.
    max_jobs: NotRequired[int | None]  # Unfinished jobs; null: no limit.
    # Hours on slower types count less, in proportion to the job's speed there; null: no limit.
    accelerator_hours_per_month: NotRequired[float | None]
    budget_usd_per_month: NotRequired[float | None]  # By the workers' prices.
    # Workers that jobs which may not be preempted hold together; null: no limit.
    non_preemptible_workers: NotRequired[int | None]
    session_longest_s: NotRequired[float | None]  # Seconds an interactive session may last at most; null: 12 hours.
    parent: NotRequired[str | None]  # The tier that this one is below, and shares with; null: the cluster.
