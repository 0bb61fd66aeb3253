"""What the API answers about autopilot.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import Literal, TypedDict


class CompositionScore(TypedDict):
    """What the simulations of one decision say of one composition."""

    composition: str
    futures: int  # How many simulated futures it was tried on; one that is behind drops out early.
    cost: float  # The goal's cost; 1 is the mean of all candidates.
    gain: float  # How much less it costs than the one in force, as a fraction of the cost of that.
    error: float | None  # Standard error of the gain; null: it was tried on one future only.
    epoch_cost: float  # Predicted cost of the jobs that are there, until the next decision.
    correction: float  # The factor that experience with the simulator's errors put on its costs.
    preference: float  # What earlier epochs add to its gain.
    keeps_limits: bool  # Whether it keeps the limits of the goal in every simulated future.


class AutopilotDecision(TypedDict):
    """One decision, made or failed."""

    number: int
    at_s: float
    mode: Literal["off", "advise", "auto", "pin"]  # In which it was made.
    goal: str
    seed: int
    incumbent: str  # The composition that was in force.
    chosen: str  # The composition that it chooses; the incumbent, if no other one is clearly better.
    reason: str  # Why, as a sentence.
    is_followed: bool  # Whether the scheduler was told to use it.
    failure: str  # Why there is no answer; empty if there is one.
    scores: list[CompositionScore]  # Empty if it failed.
    features: dict[str, float]  # Of the workload, by name.
    jobs: int  # Unfinished jobs at that time.
    predicted: float | None  # Predicted cost of its epoch with what was in force then; null: it failed.
    actual: float | None  # What the epoch did cost, in the same unit; null before the next decision has replayed it.
    cpu_s: float  # CPU seconds that it took, the replay of the epoch before included.
    inputs_digest: str
    can_be_verified: bool  # Whether its inputs are still stored; those of old decisions are not.


class AutopilotSetting(TypedDict):
    """What an operator has set."""

    mode: Literal["off", "advise", "auto", "pin"]
    goal: str
    candidates: list[str]  # The first is the safe one. Empty: the autopilot's own.
    epoch_s: float  # Seconds from one decision to the next.
    pinned: str  # The composition of mode `pin`; empty: none was named yet.


class Regret(TypedDict):
    """What epochs cost, and what they would have cost with one composition throughout, replayed with what happened."""

    composition: str
    epochs: int
    actual: float  # The goal's cost, summed over those epochs.
    replayed: float  # The same with this composition in force.
    regret: float  # `actual` over `replayed`, less 1; negative: the service did better.


class Autopilot(TypedDict):
    """What the autopilot does, what is in force and why."""

    setting: AutopilotSetting
    candidates: list[str]  # Those that are compared, the safe one first.
    in_force: str  # The composition that decides from the next round on.
    sentence: str  # What people read first: what is in force and why.
    newest: AutopilotDecision | None  # The newest decision; null before the first.
    next_at_s: float | None  # When the next decision is due; null in modes off and pin.
    waits_for: str  # Why there is none now; empty where it is only a matter of time.
    failures_in_a_row: int
    cpu_s_last_hour: float  # CPU seconds of its decisions within the last hour.
    regrets: list[Regret]  # Of the newest 200 decisions, against the best composition first.
    measures: dict[str, str]  # What a goal may consist of, by name.


class AutopilotVerification(TypedDict):
    """A decision made again from its stored inputs, compared with its record."""

    number: int
    same: bool
    differences: list[str]  # The fields that differ, by name.
