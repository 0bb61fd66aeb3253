"""Why a job waits, when it will run and end, and how good such predictions were (docs/explain.md)."""

from pydantic import Field

from api.schemas.fields import CompositionText, Name, NodeName, Request, TypeName, View, example
from api.schemas.jobs import JobSubmit
from api.schemas.people import TierPut
from gavel.types import Reason


class BindingView(View):
    """The accelerator type that a job waits for."""

    accelerator_type: str
    price: float = Field(description="Relative to the type with the highest price, 0 to 1.")
    source: str = Field(description="prices: of the policy; load: the part of the type that targets already use.")
    leased_workers: int
    workers: int


class PlanSpeedView(View):
    """How fast the job is under one of its execution plans on a type, at its present size."""

    plan: str
    accelerator_type: str
    steps_per_s: float | None = Field(description="Null: see `note`.")
    note: str = Field(description="not measured; not here: the plan does not hold on the type; failed here; or empty.")


class ExplanationView(View):
    """Why a job does not run, what would change that, and when it should start and end."""

    job_id: str
    sentence: str = Field(description="What people read first: where the job is, and when it starts or ends.")
    code: Reason = Field(description="The first reason that holds; docs/explain.md has them all.")
    message: str
    binding: BindingView | None
    target_fraction: dict[str, float] = Field(description="The fraction of time that the allocation gives, by type.")
    received: dict[str, float] = Field(
        description="Fraction of the time since submission that the job received, by type."
    )
    deficit_s: float | None = Field(
        description="Seconds behind what a 1/n share to itself would have done; negative: ahead."
    )
    isolated_share: str = Field(description="The same in words: 12 min behind its isolated share.")
    lag_rounds: float = Field(description="Rounds behind the target fraction, on the type where it lags most.")
    position: int | None = Field(description="Among the waiting jobs of its tier, from 1; null: it does not wait.")
    jobs_ahead: int
    tier_objective: str = Field(
        description="By which objective its tier shares, and when to choose that; empty: the policy knows no tiers."
    )
    would_unblock: list[str] = Field(description="Sentences, what helps soonest first.")
    plan: str | None = Field(description="Execution plan in force; null: the job has none.")
    plan_reason: str = Field(description="Which plan it runs under, and why, beside the others; empty without plans.")
    plan_speeds: list[PlanSpeedView]
    est_start_at_s: float | None = Field(description="Null: it runs, or its start cannot be predicted.")
    est_start_low_at_s: float | None
    est_start_high_at_s: float | None
    est_finish_at_s: float | None
    est_finish_low_at_s: float | None = Field(description="With the other end: should hold nine times in ten.")
    est_finish_high_at_s: float | None
    est_finish_assumes: str = Field(
        description="Of an elastic job: the size that the end is expected for, which rounds may change; else empty."
    )


class CalibrationView(View):
    """How the first predictions for the jobs that completed last compare with what happened.

    Shares are null while no job has completed. Errors are of the finish: the median of the absolute error.
    """

    predictions: int
    target: float = Field(description="The share of intervals that should hold.")
    finishes_inside: float | None
    starts_inside: float | None
    median_error_s: float | None
    median_relative_error: float | None = Field(description="Relative to the time from the prediction to the end.")
    is_learned: bool = Field(description="Whether enough jobs have completed to derive the intervals from them.")


class TierPreview(TierPut):
    """A tier's rules as they would be. A name that does not exist yet is a new tier."""

    model_config = example(name="gold", weight=2.0, objective="fairness", guarantee=0.25)

    name: Name


class NodesAdded(Request):
    """Nodes that do not exist yet, all alike."""

    count: int = Field(1, ge=1, le=1000)
    accelerator_type: TypeName
    workers: int = Field(1, ge=1, le=64, description="Accelerators on each.")


class WhatIf(Request):
    """What to try on the live state; what is left out stays as it is."""

    model_config = example(
        policy="max_min_fairness", nodes_added=[{"count": 2, "accelerator_type": "a100", "workers": 8}]
    )

    policy: CompositionText | None = Field(
        None, description="A name of `GET /v1/policies`, with ?parameters and /parts."
    )
    tiers: list[TierPreview] = Field(default_factory=list, max_length=100)
    nodes_gone: list[NodeName] = Field(default_factory=list, max_length=1000)
    nodes_added: list[NodesAdded] = Field(default_factory=list, max_length=100)
    job: JobSubmit | None = Field(None, description="One more job, submitted now.")


class TierEffect(View):
    """Workers that a tier's jobs hold on average, by type, and their part of the cluster; null: no such tier."""

    tier: str
    share_before: float | None
    share_after: float | None
    workers_before: dict[str, float] | None
    workers_after: dict[str, float] | None


class JobEffect(View):
    """One job: time fractions by type, the resulting steps per second, and when it would end; null: not in that state.

    Both ends come from a simulation from now on, without and with the change. They differ from `est_finish_at_s`, which
    is what the service expects of its own rounds.
    """

    job_id: str = Field(description="`what-if`: the job that was not submitted.")
    kind: str
    user: str
    tier: str
    target_before: dict[str, float] | None
    target_after: dict[str, float] | None
    steps_per_s_before: float | None
    steps_per_s_after: float | None
    simulated_finish_at_s_before: float | None
    simulated_finish_at_s_after: float | None
    is_simulated: bool = Field(
        description="Ends come from simulated rounds, else from a fluid model (docs/explain.md)."
    )


class EffectsView(View):
    """The live state without and with a change; nothing was changed. Of the jobs, those that gain or lose most."""

    policy_before: str
    policy_after: str
    capacity_before: dict[str, int]
    capacity_after: dict[str, int]
    tiers: list[TierEffect]
    jobs: list[JobEffect]
    jobs_total: int = Field(description="Jobs that you may see; the list is cut at 200.")
    simulated_mean_left_s_before: float | None = Field(
        description="Mean time left of the jobs that end with and without the change."
    )
    simulated_mean_left_s_after: float | None


class LeaseDifference(View):
    """A lease that only one side has."""

    job_id: str
    accelerator_type: str
    worker_ids: list[str]
    generation: int
    is_stored: bool = Field(description="True: only the stored round has it; false: only the round decided again.")


class VerificationView(View):
    """A round decided again from its stored inputs, compared with its record."""

    round_index: int
    policy: str
    same: bool
    solver_outcome: str
    largest_difference: float | None = Field(
        description="Largest difference of a time fraction; null: the round had no solve of its own."
    )
    leases: int
    differences: list[LeaseDifference]
    note: str
