"""How far a run was from the best composition that could have been fixed for all of it, had one known."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gavel.autopilot.course import course_of_rows
from gavel.autopilot.goals import Goal, costs
from gavel.simulator.outcome import SimulationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """`measures`: those of the goal, by name. `regret`: the goal's cost over that of the best fixed one, less 1."""

    measures: Mapping[str, float]
    regret: float


def hindsight(goal: Goal, run: str, outcomes: Mapping[str, SimulationOutcome]) -> dict[str, Hindsight]:
    """Return the regret of each run; all but `run` had one composition throughout."""
    measured = {name: costs(goal.counted(course_of_rows(outcome.rows))) for name, outcome in outcomes.items()}
    fixed = [each for name, each in measured.items() if name != run]
    scale = {name: float(np.mean([each[name] for each in fixed])) for name, _ in goal.weights}
    cost = {name: goal.cost(each, scale) for name, each in measured.items()}
    least = min(each for name, each in cost.items() if name != run)
    return {
        name: Hindsight(
            measures={of: each[of] for of, _ in goal.weights}, regret=cost[name] / least - 1 if least > 0 else 0.0
        )
        for name, each in measured.items()
    }
