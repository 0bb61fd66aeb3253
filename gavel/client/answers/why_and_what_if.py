"""What the API answers about why and what if.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import TypedDict

from gavel.client.answers.jobs import Reason


class Binding(TypedDict):
    """The accelerator type that a job waits for."""

    accelerator_type: str
    price: float  # Relative to the type with the highest price, 0 to 1.
    source: str  # prices: of the policy; load: the part of the type that targets already use.
    leased_workers: int
    workers: int


class PlanSpeed(TypedDict):
    """How fast the job is under one of its execution plans on a type, at its present size."""

    plan: str
    accelerator_type: str
    steps_per_s: float | None  # Null: see `note`.
    note: str  # not measured; not here: the plan does not hold on the type; failed here; or empty.


class Explanation(TypedDict):
    """Why a job does not run, what would change that, and when it should start and end."""

    job_id: str
    sentence: str  # What people read first: where the job is, and when it starts or ends.
    code: Reason  # The first reason that holds; docs/explain.md has them all.
    message: str
    binding: Binding | None
    target_fraction: dict[str, float]  # The fraction of time that the allocation gives, by type.
    received: dict[str, float]  # Fraction of the time since submission that the job received, by type.
    deficit_s: float | None  # Seconds behind what a 1/n share to itself would have done; negative: ahead.
    isolated_share: str  # The same in words: 12 min behind its isolated share.
    lag_rounds: float  # Rounds behind the target fraction, on the type where it lags most.
    position: int | None  # Among the waiting jobs of its tier, from 1; null: it does not wait.
    jobs_ahead: int
    # By which objective its tier shares, and when to choose that; empty: the policy knows no tiers.
    tier_objective: str
    would_unblock: list[str]  # Sentences, what helps soonest first.
    plan: str | None  # Execution plan in force; null: the job has none.
    plan_reason: str  # Which plan it runs under, and why, beside the others; empty without plans.
    plan_speeds: list[PlanSpeed]
    est_start_at_s: float | None  # Null: it runs, or its start cannot be predicted.
    est_start_low_at_s: float | None
    est_start_high_at_s: float | None
    est_finish_at_s: float | None
    est_finish_low_at_s: float | None  # With the other end: should hold nine times in ten.
    est_finish_high_at_s: float | None
    # Of an elastic job: the size that the end is expected for, which rounds may change; else empty.
    est_finish_assumes: str


class Calibration(TypedDict):
    """How the first predictions for the jobs that completed last compare with what happened."""

    predictions: int
    target: float  # The share of intervals that should hold.
    finishes_inside: float | None
    starts_inside: float | None
    median_error_s: float | None
    median_relative_error: float | None  # Relative to the time from the prediction to the end.
    is_learned: bool  # Whether enough jobs have completed to derive the intervals from them.


class JobEffect(TypedDict):
    """One job: time fractions by type, the resulting steps per second, and when it would end; null: not in that
    state."""

    job_id: str  # `what-if`: the job that was not submitted.
    kind: str
    user: str
    tier: str
    target_before: dict[str, float] | None
    target_after: dict[str, float] | None
    steps_per_s_before: float | None
    steps_per_s_after: float | None
    simulated_finish_at_s_before: float | None
    simulated_finish_at_s_after: float | None
    is_simulated: bool  # Ends come from simulated rounds, else from a fluid model (docs/explain.md).


class TierEffect(TypedDict):
    """Workers that a tier's jobs hold on average, by type, and their part of the cluster; null: no such tier."""

    tier: str
    share_before: float | None
    share_after: float | None
    workers_before: dict[str, float] | None
    workers_after: dict[str, float] | None


class Effects(TypedDict):
    """The live state without and with a change; nothing was changed. Of the jobs, those that gain or lose most."""

    policy_before: str
    policy_after: str
    capacity_before: dict[str, int]
    capacity_after: dict[str, int]
    tiers: list[TierEffect]
    jobs: list[JobEffect]
    jobs_total: int  # Jobs that you may see; the list is cut at 200.
    simulated_mean_left_s_before: float | None  # Mean time left of the jobs that end with and without the change.
    simulated_mean_left_s_after: float | None


class LeaseDifference(TypedDict):
    """A lease that only one side has."""

    job_id: str
    accelerator_type: str
    worker_ids: list[str]
    generation: int
    is_stored: bool  # True: only the stored round has it; false: only the round decided again.


class Verification(TypedDict):
    """A round decided again from its stored inputs, compared with its record."""

    round_index: int
    policy: str
    same: bool
    solver_outcome: str
    largest_difference: float | None  # Largest difference of a time fraction; null: the round had no solve of its own.
    leases: int
    differences: list[LeaseDifference]
    note: str
