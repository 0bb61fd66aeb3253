"""Estimates from reports of gangs that share their workers with another gang, or are spread over several nodes.

`Interference` estimates pairs for one version of the estimator; pairs.py has the model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.estimator.beliefs import Beliefs
from gavel.estimator.evidence import Evidence
from gavel.estimator.pairs import PairEstimates, PairSeen, Sized, pair_estimates
from gavel.estimator.tables import CONSOLIDATED, InterferenceKey, Key
from gavel.types import AcceleratorType

ColocatedKey = tuple[str, int, AcceleratorType, str]  # a kind in one gang size on a type, and the kind of its partner
SPREAD = "spread"
SPREAD_LOG_RATIO, SPREAD_VARIANCE = -0.4, 0.3  # of log(rate over several nodes / rate on one), before anything is known


def gathered(interference: Mapping[InterferenceKey, Evidence]) -> dict[Key, Evidence]:
    """Return rough rates of consolidated gangs from those measured spread over nodes, worth one report each."""
    return {
        key[:3]: replace(
            rate,
            published=rate.published * math.exp(-SPREAD_LOG_RATIO),
            weight=1.0,
            variance=rate.error**2 + SPREAD_VARIANCE,
        )
        for key, rate in interference.items()
        if key[4] == SPREAD and not key[3] and rate.is_representative
    }


def measured_fractions(
    cells: Sequence[ColocatedKey],
    alone_steps_per_s: Sequence[float],
    interference: Mapping[InterferenceKey, Evidence],
) -> dict[ColocatedKey, float]:
    """Return what the kinds of `cells` were measured to keep of their rates alone, in [0, 1]; the others are left out.

    Beside a partner and spread over nodes as well counts where it was measured in no other way, and is too little
    rather than too much.
    """
    fractions = {}
    for cell, alone in zip(cells, alone_steps_per_s, strict=True):
        rates = (interference.get((*cell, placement)) for placement in (CONSOLIDATED, SPREAD))
        rate = next((each for each in rates if each is not None and each.is_representative), None)
        if rate is not None:
            fractions[cell] = min(1.0, rate.published / alone)
    return fractions


class Interference:
    """Pair estimates from the rates alone, the rates under interference, and the beliefs that the rates alone give."""

    def __init__(
        self, alone: Mapping[Key, Evidence], interference: Mapping[InterferenceKey, Evidence], beliefs: Beliefs
    ) -> None:
        self.beliefs, self._pairs_seen = beliefs, _pairs_seen(alone, interference)
        self._pairs: dict[tuple[tuple[Sized, ...], tuple[AcceleratorType, ...]], PairEstimates] = {}

    def pairs(self, kinds: Sequence[Sized], types: Sequence[AcceleratorType]) -> PairEstimates:
        """Return the estimates of every pair of these kinds on every type, (m, n, n); computed once."""
        question = tuple(kinds), tuple(types)
        if question not in self._pairs:
            seen = self._pairs_seen
            partners = [(each.partner, each.scale_factor) for each in seen]
            every = {*kinds, *((each.kind, each.scale_factor) for each in seen), *partners}
            log_rate = {each: self.beliefs.of(*each).mean for each in every}
            self._pairs[question] = pair_estimates(kinds, types, seen, log_rate)
        return self._pairs[question]


def _pairs_seen(alone: Mapping[Key, Evidence], interference: Mapping[InterferenceKey, Evidence]) -> list[PairSeen]:
    """Return the kinds measured both beside a partner and alone, oldest first."""
    return [
        PairSeen(
            kind=key[0],
            partner=key[3],
            scale_factor=key[1],
            accelerator_type=key[2],
            rate=min(1.0, ratio),
            deviation=ratio * deviation,
        )
        for key, ratio, deviation in _ratios(alone, interference)
        if key[3] and key[4] != SPREAD
    ]


def _ratios(
    alone: Mapping[Key, Evidence], interference: Mapping[InterferenceKey, Evidence]
) -> "list[tuple[InterferenceKey, float, float]]":
    """Return (key, rate divided by the rate alone, deviation of its logarithm) of what was measured both ways."""
    ratios = []
    for key, rate in interference.items():
        base = alone.get(key[:3])
        if base is not None and base.is_representative and rate.is_representative:
            ratios.append((key, rate.published / base.published, float(np.hypot(rate.error, base.error))))
    return ratios
