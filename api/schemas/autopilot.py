"""The autopilot: what is set, what is in force and why, and its decisions (docs/autopilot.md)."""

from typing import Literal

from pydantic import Field

from api.schemas.fields import CompositionText, Request, View, example
from gavel.types.autopilot import EPOCH_LEAST_S, EPOCH_MOST_S

Mode = Literal["off", "advise", "auto", "pin"]


class AutopilotPut(Request):
    """What to set of the autopilot. What is left out, or null, stays as it is."""

    model_config = example(mode="auto", goal="mean_slowdown", candidates=["max_min_fairness", "fifo/backfill=false"])

    mode: Mode | None = Field(
        None,
        description="off: no decisions; advise: decisions that change nothing; auto: they are in force;"
        " pin: `pinned` is in force.",
    )
    goal: str | None = Field(
        None,
        min_length=1,
        max_length=300,
        description="Measures with weights, and limits: `mean_jct`, or `mean_jct=2,money=1,longest_wait_s<=86400`.",
    )
    candidates: list[CompositionText] | None = Field(
        None,
        max_length=100,
        description="Compositions to choose from, `POLICY?parameter=value/PART=VALUE`, the safe one first."
        " Empty: its own.",
    )
    epoch_s: float | None = Field(
        None, ge=EPOCH_LEAST_S, le=EPOCH_MOST_S, description="Seconds from one decision to the next."
    )
    pinned: CompositionText | None = Field(None, description="The composition of mode `pin`.")


class AutopilotSettingView(View):
    """What an operator has set."""

    mode: Mode
    goal: str
    candidates: list[str] = Field(description="The first is the safe one. Empty: the autopilot's own.")
    epoch_s: float = Field(description="Seconds from one decision to the next.")
    pinned: str = Field(description="The composition of mode `pin`; empty: none was named yet.")


class CompositionScoreView(View):
    """What the simulations of one decision say of one composition."""

    composition: str
    futures: int = Field(description="How many simulated futures it was tried on; one that is behind drops out early.")
    cost: float = Field(description="The goal's cost; 1 is the mean of all candidates.")
    gain: float = Field(description="How much less it costs than the one in force, as a fraction of the cost of that.")
    error: float | None = Field(description="Standard error of the gain; null: it was tried on one future only.")
    epoch_cost: float = Field(description="Predicted cost of the jobs that are there, until the next decision.")
    correction: float = Field(description="The factor that experience with the simulator's errors put on its costs.")
    preference: float = Field(description="What earlier epochs add to its gain.")
    keeps_limits: bool = Field(description="Whether it keeps the limits of the goal in every simulated future.")


class AutopilotDecisionView(View):
    """One decision, made or failed."""

    number: int
    at_s: float
    mode: Mode = Field(description="In which it was made.")
    goal: str
    seed: int
    incumbent: str = Field(description="The composition that was in force.")
    chosen: str = Field(
        description="The composition that it chooses; the incumbent, if no other one is clearly better."
    )
    reason: str = Field(description="Why, as a sentence.")
    is_followed: bool = Field(description="Whether the scheduler was told to use it.")
    failure: str = Field(description="Why there is no answer; empty if there is one.")
    scores: list[CompositionScoreView] = Field(description="Empty if it failed.")
    features: dict[str, float] = Field(description="Of the workload, by name.")
    jobs: int = Field(description="Unfinished jobs at that time.")
    predicted: float | None = Field(
        description="Predicted cost of its epoch with what was in force then; null: it failed."
    )
    actual: float | None = Field(
        description="What the epoch did cost, in the same unit; null before the next decision has replayed it."
    )
    cpu_s: float = Field(description="CPU seconds that it took, the replay of the epoch before included.")
    inputs_digest: str
    can_be_verified: bool = Field(description="Whether its inputs are still stored; those of old decisions are not.")


class AutopilotDecisionList(View):
    """Newest first."""

    items: list[AutopilotDecisionView]
    next_before: int | None = Field(description="Ask for decisions before this one to go on; null at the end.")


class RegretView(View):
    """What epochs cost, and what they would have cost with one composition throughout, replayed with what happened."""

    composition: str
    epochs: int
    actual: float = Field(description="The goal's cost, summed over those epochs.")
    replayed: float = Field(description="The same with this composition in force.")
    regret: float = Field(description="`actual` over `replayed`, less 1; negative: the service did better.")


class AutopilotView(View):
    """What the autopilot does, what is in force and why."""

    setting: AutopilotSettingView
    candidates: list[str] = Field(description="Those that are compared, the safe one first.")
    in_force: str = Field(description="The composition that decides from the next round on.")
    sentence: str = Field(description="What people read first: what is in force and why.")
    newest: AutopilotDecisionView | None = Field(description="The newest decision; null before the first.")
    next_at_s: float | None = Field(description="When the next decision is due; null in modes off and pin.")
    waits_for: str = Field(description="Why there is none now; empty where it is only a matter of time.")
    failures_in_a_row: int
    cpu_s_last_hour: float = Field(description="CPU seconds of its decisions within the last hour.")
    regrets: list[RegretView] = Field(description="Of the newest 200 decisions, against the best composition first.")
    measures: dict[str, str] = Field(description="What a goal may consist of, by name.")


class AutopilotVerificationView(View):
    """A decision made again from its stored inputs, compared with its record."""

    number: int
    same: bool
    differences: list[str] = Field(description="The fields that differ, by name.")
