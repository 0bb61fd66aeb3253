"""Would a tier rather have had what another got? Envy, as in fair division, over the course of a run."""

from collections.abc import Sequence

import numpy as np

from gavel.types import FloatArray, IntArray, Tier


class Envy:
    """Adds up, over time, what each tier's jobs make of its own workers and would make of any other tier's.

    Envy-freeness of a sharing policy (Dominant Resource Fairness, NSDI '11, section 3): nobody would rather have what
    another has. Tiers differ in weight, so tier k looks at what tier l holds times W_k / W_l; and a tier can use no
    more workers than its jobs ask for, the fastest first.
    """

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._weight = np.array([tier.weight for tier in tiers])
        self._worth = np.zeros((len(tiers), len(tiers)))  # [k, l]: worker seconds at k's best speed, of what l holds

    def add(self, held: FloatArray, speed: FloatArray, wanted: FloatArray, seconds: float) -> None:
        """For so long, tiers hold `held` (k, m) workers, which their jobs would drive at the relative `speed` (k, m).

        `wanted` (k,) workers are what the jobs of each tier ask for in all.
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
        """By which part of what it made of its own workers each tier would have gained, (k,); 0: it envies nobody.

        +inf for a tier that wanted workers and got none.
        """
        own = np.diag(self._worth)
        best = self._worth.max(axis=1)
        gain: FloatArray = np.divide(best, own, out=np.where(best > 0, np.inf, 1.0), where=own > 0) - 1.0
        return gain


def mean_speed(rates: FloatArray, scale_factor: IntArray, tier: IntArray, tiers: int) -> tuple[FloatArray, FloatArray]:
    """Mean relative speed T_ij / max_j T_ij of each tier's jobs on each type (k, m), and the workers they want (k,)."""
    wanted = np.bincount(tier, weights=scale_factor, minlength=tiers).astype(float)
    speed = np.zeros((tiers, rates.shape[1]))
    best = rates.max(axis=1, keepdims=True)
    np.add.at(speed, tier, rates / np.where(best > 0, best, 1.0) * scale_factor[:, None])
    return speed / np.maximum(wanted, 1.0)[:, None], wanted
