"""What the service's own epochs have cost, compared with what each composition would have cost in their place."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from gavel.types.autopilot import AutopilotDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Of one composition: the epochs that were replayed with it, what they cost, and what they would have with it.

    Costs are in the unit of the goal of each epoch's decision, summed over the epochs.
    """

    composition: str
    epochs: int
    actual: float
    replayed: float

    @property
    def regret(self) -> float:
        """Return the cost over that of the composition, less 1; negative where the service did better."""
        return self.actual / self.replayed - 1


def regrets(decisions: Iterable[AutopilotDecision]) -> tuple[Regret, ...]:
    """Return the regret against each composition, against the best one first; those that cost nothing are left out."""
    costs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in decisions:
        for composition, replayed in each.replayed:
            if each.actual is not None:
                costs[composition].append((each.actual, replayed))
    compared = [_regret(composition, pairs) for composition, pairs in costs.items()]
    return tuple(sorted((each for each in compared if each.replayed > 0), key=lambda each: -each.regret))


def _regret(composition: str, pairs: Sequence[tuple[float, float]]) -> Regret:
    actual, replayed = (fsum(each) for each in zip(*pairs, strict=True))
    return Regret(composition=composition, epochs=len(pairs), actual=actual, replayed=replayed)
