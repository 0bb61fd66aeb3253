"""What the epochs that are over have taught: errors of the simulator, the best compositions, drifts, fall-backs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gavel.autopilot import hedge
from gavel.autopilot.drift import Drift
from gavel.autopilot.residual import Residual
from gavel.autopilot.safety import COOL_DOWN_EPOCHS, EPOCHS, EpochCost, must_fall_back
from gavel.types import FloatArray

KEPT = 0.2  # the part of the experience that is kept after a drift


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Epoch:
    """An epoch that is over. Costs are the goal's, by composition, of the jobs that were there at its decision.

    `predicted` by the decision; `replayed` with what really happened; `real`: of what was in force. `whole`: as
    `replayed`, with the jobs that came and what was left to do at the end. `features`, `ln_rate`: see features.py.
    """

    in_force: str
    real: float
    predicted: Mapping[str, float]
    replayed: Mapping[str, float]
    whole: Mapping[str, float]
    features: FloatArray
    ln_rate: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experience:
    """`residuals` of what all compositions have not in common, and `weights` (they sum to 1), by composition.

    `cool_down` epochs are left to the safe composition."""

    residuals: Mapping[str, Residual] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    error: Drift = field(default_factory=Drift)
    rate: Drift = field(default_factory=Drift)
    epochs: tuple[EpochCost, ...] = ()
    cool_down: int = 0

    @property
    def is_fallen_back(self) -> bool:
        """Return True while the safe composition is in force because the others did worse."""
        return self.cool_down > 0

    @property
    def is_drift(self) -> bool:
        """Return True if the last epoch showed that the workload, or the simulator's error, has changed."""
        return self.error.is_alarm or self.rate.is_alarm

    def correction(self, composition: str, features: FloatArray) -> float:
        """Return the factor for what the simulator predicts of the composition; 1 without experience."""
        residual = self.residuals.get(composition)
        return 1.0 if residual is None else residual.correction(features)

    def preference(self, composition: str, incumbent: str) -> float:
        """Return by how much the logarithm of its weight is above the incumbent's; 0 without experience."""
        if composition not in self.weights or incumbent not in self.weights:
            return 0.0
        return float(np.log(self.weights[composition] / self.weights[incumbent]))

    def after(self, epoch: Epoch, safe: str) -> "Experience":
        """Return the experience after one more epoch."""
        errors = _errors(epoch)
        error, rate = self.error.followed_by(errors.get(epoch.in_force, 0.0)), self.rate.followed_by(epoch.ln_rate)
        common = float(np.mean([*errors.values()])) if errors else 0.0  # it changes no choice
        errors = {name: each - common for name, each in errors.items()}
        is_drift = error.is_alarm or rate.is_alarm
        epochs = (*self.epochs, EpochCost(real=epoch.real, safe=epoch.replayed[safe]))[-EPOCHS:]
        falls_back = not self.cool_down and epoch.in_force != safe and must_fall_back(epochs)
        return Experience(
            residuals=self._residuals(errors, epoch.features, KEPT if is_drift else 1.0),
            weights=hedge.uniform(tuple(epoch.whole)) if is_drift else self._weights(epoch),
            error=error,
            rate=rate,
            epochs=() if falls_back else epochs,
            cool_down=COOL_DOWN_EPOCHS if falls_back else max(0, self.cool_down - 1),
        )

    def _residuals(self, errors: Mapping[str, float], features: FloatArray, kept: float) -> dict[str, Residual]:
        residuals = {name: each.forgotten(kept) if kept < 1 else each for name, each in self.residuals.items()}
        for name, error in errors.items():
            residuals[name] = residuals.get(name, Residual.of(len(features))).learned(features, error)
        return residuals

    def _weights(self, epoch: Epoch) -> dict[str, float]:
        before = self.weights if set(self.weights) == set(epoch.whole) else hedge.uniform(tuple(epoch.whole))
        return hedge.updated(before, hedge.losses(epoch.whole))


def _errors(epoch: Epoch) -> dict[str, float]:
    """Return ln(real / predicted) of each composition, replayed where it was not in force; none where either is 0."""
    real = {**epoch.replayed, epoch.in_force: epoch.real}
    pairs = ((name, real[name], cost) for name, cost in epoch.predicted.items() if name in real)
    return {name: float(np.log(cost / predicted)) for name, cost, predicted in pairs if cost > 0 and predicted > 0}
