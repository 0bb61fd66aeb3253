"""The autopilot of the service: what an operator has set, and the decisions that it has made."""

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_EPOCH_S = 8 * 3600.0
EPOCH_LEAST_S, EPOCH_MOST_S = 1.0, 30 * 86_400.0


class AutopilotMode(StrEnum):
    """What the autopilot may do: nothing, advise, follow its own decisions, or keep one composition."""

    OFF = "off"
    ADVISE = "advise"
    AUTO = "auto"
    PIN = "pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutopilotSetting:
    """What an operator has set. `goal` and `candidates` are texts as those of `gavel simulate --autopilot`.

    No candidates: those of the autopilot's own. The first is the safe one. `pinned`: the composition of mode `pin`.
    """

    mode: AutopilotMode = AutopilotMode.ADVISE
    goal: str = "mean_jct"
    candidates: tuple[str, ...] = ()
    epoch_s: float = DEFAULT_EPOCH_S
    pinned: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositionScore:
    """What the simulations of one decision say of one composition.

    `cost`: the goal's, 1 for the mean of all candidates; `gain` over the one in force with its standard `error`, both
    fractions of the cost of that one; `epoch_cost`: predicted for the jobs that were there, until the next decision.
    """

    composition: str
    futures: int
    cost: float
    gain: float
    error: float
    epoch_cost: float
    correction: float
    preference: float
    keeps_limits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AutopilotDecision:
    """One decision, made or failed. `number` counts from 0.

    `is_followed`: the scheduler was told to use `chosen`. `failure`: why there is no answer (then `scores` is empty).
    `setting`, `workers` (how many of each type were usable, by type) and `jobs` (unfinished ones) are what it was made
    for. `features`: of the workload, by name. `replayed`: what the epoch that ended with this decision would have cost
    with each composition, by name, in the unit of the goal of the decision before; `actual`: what it did cost; None
    before there was an epoch. `inputs_digest`: that of the question, which is stored while `has_question`.
    """

    number: int
    at_s: float
    mode: AutopilotMode
    goal: str
    seed: int
    incumbent: str
    chosen: str
    reason: str
    is_followed: bool = False
    failure: str = ""
    inputs_digest: str = ""
    scores: tuple[CompositionScore, ...] = ()
    features: tuple[tuple[str, float], ...] = ()
    replayed: tuple[tuple[str, float], ...] = ()
    actual: float | None = None
    cpu_s: float = 0.0
    setting: AutopilotSetting | None = None
    workers: tuple[tuple[str, int], ...] = ()
    jobs: int = 0
    has_question: bool = False
