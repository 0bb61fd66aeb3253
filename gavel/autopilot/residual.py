"""By how much the simulator is wrong about a composition, learned as the logarithm of real over predicted cost.

Ridge regression, recursive and with forgetting: A <- f A + (1 - f) r I + phi phi', b <- f b + phi e, theta = A^-1 b.
Without experience theta is 0: what the simulator predicts is believed. What is expected counts only as far as it is
beyond its own standard error, so that no composition is left for what a few epochs taught.
"""

import math
from dataclasses import dataclass

import numpy as np

from gavel.types import FloatArray

FORGETTING = 0.98
RIDGE = 5.0
ERROR = 0.1  # by how much ln(real / predicted) of a composition differs from epoch to epoch
MOST = np.log(1.25)  # of the correction, up or down


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """`weight` is A (d, d), `moment` is b (d,)."""

    weight: FloatArray
    moment: FloatArray

    @classmethod
    def of(cls, features: int) -> "Residual":
        """Return a residual without experience."""
        return cls(RIDGE * np.eye(features), np.zeros(features))

    def learned(self, features: FloatArray, error: float) -> "Residual":
        """Return the residual after one more error, ln(real / predicted), where the features (d,) were these."""
        ridge = (1 - FORGETTING) * RIDGE * np.eye(len(features))
        weight = FORGETTING * self.weight + ridge + np.outer(features, features)
        return Residual(weight, FORGETTING * self.moment + features * error)

    def forgotten(self, part: float) -> "Residual":
        """Return the residual with this part of its experience."""
        rest = (1 - part) * RIDGE * np.eye(len(self.moment))
        return Residual(part * self.weight + rest, part * self.moment)

    def correction(self, features: FloatArray) -> float:
        """Return the factor by which a predicted cost is multiplied, between 0.8 and 1.25."""
        gain = np.linalg.solve(self.weight, features)
        expected, error = float(gain @ self.moment), ERROR * math.sqrt(max(0.0, float(gain @ features)))
        clear = expected - np.clip(expected, -error, error)
        return float(np.exp(np.clip(clear, -MOST, MOST)))
