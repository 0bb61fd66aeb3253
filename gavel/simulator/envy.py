"""Envy between tiers, as in fair division, over a run: would a tier have gained from what another tier got?"""

from collections.abc import Sequence

import numpy as np

from gavel.types import FloatArray, IntArray, Tier


class Envy:
    """Adds up over time what each tier's jobs make of their own workers, and what they would make of any other tier's.

    A sharing policy is envy-free (Dominant Resource Fairness, NSDI '11, section 3) if nobody would prefer what another
    one has. Tiers differ in weight, so tier k values what tier l holds times W_k / W_l; and a tier can use no more
    workers than its jobs ask for, the fastest first.
    """

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._weight = np.array([tier.weight for tier in tiers])
        self._worth = np.zeros((len(tiers), len(tiers)))  # [k, l]: worker seconds at k's best speed, of what l holds

    def add(self, held: FloatArray, speed: FloatArray, wanted: FloatArray, seconds: float) -> None:
        """Add `seconds` in which the k tiers held `held` (k, m) workers of the m types.

        `speed` (k, m): the mean relative speed of each tier's jobs on each type. `wanted` (k,): the workers that they
        ask for.
        """
        if len(wanted) < 2:
            return
        scaled = held[None, :, :] * (self._weight[:, None] / self._weight)[:, :, None]  # [k, l, type]
        fastest = np.argsort(-speed, axis=1, kind="stable")[:, None, :]
        offered = np.take_along_axis(scaled, np.broadcast_to(fastest, scaled.shape), axis=2)
        ordered = np.take_along_axis(speed[:, None, :], fastest, axis=2)
        before = np.cumsum(offered, axis=2) - offered
        used = np.clip(wanted[:, None, None] - before, 0.0, offered)
        self._worth += seconds * (used * ordered).sum(axis=2)

    def by_tier(self) -> FloatArray:
        """Return each tier's largest relative gain from another tier's workers, (k,); 0: it envies nobody.

        +inf for a tier that wanted workers and got none.
        """
        own = np.diag(self._worth)
        best = self._worth.max(axis=1)
        gain: FloatArray = np.divide(best, own, out=np.where(best > 0, np.inf, 1.0), where=own > 0) - 1.0
        return gain


def mean_speed(rates: FloatArray, scale_factor: IntArray, tier: IntArray, tiers: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean relative speed of each tier's jobs on each type (k, m), and the workers wanted (k,).

    A job's relative speed is T_ij / max_j T_ij.
    """
    wanted = np.bincount(tier, weights=scale_factor, minlength=tiers).astype(float)
    speed = np.zeros((tiers, rates.shape[1]))
    best = rates.max(axis=1, keepdims=True)
    np.add.at(speed, tier, rates / np.where(best > 0, best, 1.0) * scale_factor[:, None])
    return speed / np.maximum(wanted, 1.0)[:, None], wanted
