"""Gangs that are not alone on their workers, or not together on one node: measured, else predicted from others.

`Aside` answers for what one version of the estimator knows; pairs.py and spread.py hold the models.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.estimator.beliefs import Beliefs
from gavel.estimator.evidence import Evidence
from gavel.estimator.pairs import PairEstimates, PairSeen, Sized, pair_estimates
from gavel.estimator.spread import PRIOR_LOG_RATIO, PRIOR_VARIANCE, SpreadSeen, log_ratios
from gavel.estimator.tables import Key, SideKey, row_of
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, FloatArray

SPREAD = "spread"


def gathered(aside: Mapping[SideKey, Evidence]) -> dict[Key, Evidence]:
    """What gangs measured spread over nodes say of the same ones on as few as can be: roughly, one report each."""
    return {
        key[:3]: replace(
            rate,
            published=rate.published * math.exp(-PRIOR_LOG_RATIO),
            weight=1.0,
            variance=rate.error**2 + PRIOR_VARIANCE,
        )
        for key, rate in aside.items()
        if key[4] == SPREAD and not key[3] and rate.is_representative
    }


class Aside:
    """Built from the rates alone, the rates aside and the beliefs that follow from those alone."""

    def __init__(self, alone: Mapping[Key, Evidence], aside: Mapping[SideKey, Evidence], beliefs: Beliefs) -> None:
        self._aside, self.beliefs = aside, beliefs
        self._pairs_seen, self._spread_seen = _pairs_seen(alone, aside), _spread_seen(alone, aside)
        self._pairs: dict[tuple[tuple[Sized, ...], tuple[AcceleratorType, ...]], PairEstimates] = {}

    def pairs(self, kinds: Sequence[Sized], types: Sequence[AcceleratorType]) -> PairEstimates:
        """Every pair of these kinds on every type; remembered."""
        question = tuple(kinds), tuple(types)
        if question not in self._pairs:
            seen = self._pairs_seen
            partners = [(each.partner, each.scale_factor) for each in seen]
            every = {*kinds, *((each.kind, each.scale_factor) for each in seen), *partners}
            log_rate = {each: self.beliefs.of(*each).mean for each in every}
            self._pairs[question] = pair_estimates(kinds, types, seen, log_rate)
        return self._pairs[question]

    def estimate(self, alone: ThroughputEstimate, partner: str | None, placement: str) -> ThroughputEstimate:
        """What is believed of a gang beside a partner, spread, or both, given what is believed of it alone."""
        name = alone.accelerator_type
        key = alone.kind, alone.scale_factor, name
        rate = self._aside.get((*key, partner or "", placement))
        if rate is not None and rate.is_representative:
            return replace(row_of(key, rate), partner=partner, placement=placement)
        log_ratio, variance = 0.0, alone.relative_error**2
        if partner is not None:
            found = self.pairs([(alone.kind, alone.scale_factor), (partner, alone.scale_factor)], [name])
            share = max(0.01, float(found.rate[0, 0, 1]))
            log_ratio += math.log(share)
            variance += (float(found.deviation[0, 0, 1]) / share) ** 2
        if placement == SPREAD:
            means, deviations = self._spread(alone.kind, alone.scale_factor, [name])
            log_ratio += float(means[0])
            variance += float(deviations[0]) ** 2
        return replace(
            alone,
            steps_per_s=alone.steps_per_s * math.exp(log_ratio),
            relative_error=math.sqrt(variance),
            source="inferred",
            measurements=0,
            partner=partner,
            placement=placement,
            stated_by={},
            refused=0,
        )

    def _spread(self, kind: str, size: int, types: Sequence[AcceleratorType]) -> tuple[FloatArray, FloatArray]:
        log_rate = {each: self.beliefs.of(each, 1).mean for each in {kind, *(row.kind for row in self._spread_seen)}}
        return log_ratios(kind, size, types, self._spread_seen, log_rate)


def _pairs_seen(alone: Mapping[Key, Evidence], aside: Mapping[SideKey, Evidence]) -> list[PairSeen]:
    """What was measured beside a partner and alone, oldest first."""
    return [
        PairSeen(
            kind=key[0],
            partner=key[3],
            scale_factor=key[1],
            accelerator_type=key[2],
            rate=min(1.0, ratio),
            deviation=ratio * deviation,
        )
        for key, ratio, deviation in _ratios(alone, aside)
        if key[3] and key[4] != SPREAD
    ]


def _spread_seen(alone: Mapping[Key, Evidence], aside: Mapping[SideKey, Evidence]) -> list[SpreadSeen]:
    """What was measured spread and consolidated, oldest first."""
    return [
        SpreadSeen(
            kind=key[0], scale_factor=key[1], accelerator_type=key[2], log_ratio=math.log(ratio), deviation=deviation
        )
        for key, ratio, deviation in _ratios(alone, aside)
        if not key[3] and key[4] == SPREAD and key[1] > 1
    ]


def _ratios(alone: Mapping[Key, Evidence], aside: Mapping[SideKey, Evidence]) -> "list[tuple[SideKey, float, float]]":
    """(key, rate over the rate alone, deviation of its logarithm) of all that was measured both ways."""
    found = []
    for key, rate in aside.items():
        base = alone.get(key[:3])
        if base is not None and base.is_representative and rate.is_representative:
            found.append((key, rate.published / base.published, float(np.hypot(rate.error, base.error))))
    return found
