"""What a gang loses when its workers lie on several nodes, log(rate spread / rate consolidated), from few measured.

A Gaussian process over (kind, type, scale factor); kinds that are alike lose alike. A gang of one loses nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.estimator.similarity import posterior, similarity
from gavel.types import AcceleratorType, FloatArray

PRIOR_LOG_RATIO = -0.4
COMMON, OF_TYPE, OF_KIND, OF_KIND_ON_TYPE = 0.05, 0.1, 0.05, 0.1  # variances of the parts
PRIOR_VARIANCE = COMMON + OF_TYPE + OF_KIND + OF_KIND_ON_TYPE
GANG_LENGTH = 4.0  # doublings of the gang over which what was measured at one size holds
OBSERVED_MAX = 1_000  # gangs used, the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadSeen:
    """A gang that was measured both ways, or is well known consolidated."""

    kind: str
    scale_factor: int
    accelerator_type: AcceleratorType
    log_ratio: float
    deviation: float


def log_ratios(
    kind: str,
    scale_factor: int,
    types: Sequence[AcceleratorType],
    seen: Sequence[SpreadSeen],
    log_rate: Mapping[str, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation (m,) of the logarithm of spread over consolidated.

    `log_rate` are (any,) logarithms of the rates alone of this kind and of all seen.
    """
    if scale_factor == 1:
        return np.zeros(len(types)), np.zeros(len(types))
    seen = seen[-OBSERVED_MAX:]
    prior = np.full(len(types), PRIOR_VARIANCE)
    if not seen:
        return np.full(len(types), PRIOR_LOG_RATIO), np.sqrt(prior)
    every = list(dict.fromkeys([kind, *(each.kind for each in seen)]))
    alike = similarity(every, np.array([log_rate[each] for each in every]))
    rows = np.array([every.index(each.kind) for each in seen])
    names = np.array([each.accelerator_type for each in seen])
    doublings = np.log2([each.scale_factor for each in seen])

    def covariance(of: FloatArray, on: Sequence[str] | np.ndarray, size: FloatArray) -> FloatArray:
        same = np.asarray(on)[:, None] == names
        near = np.exp(-np.abs(size[:, None] - doublings) / GANG_LENGTH)
        parts: FloatArray = COMMON + OF_TYPE * same + (OF_KIND + OF_KIND_ON_TYPE * same) * of[:, rows]
        return parts * near

    noise = np.array([each.deviation for each in seen]) ** 2
    above = np.array([each.log_ratio for each in seen]) - PRIOR_LOG_RATIO
    found = posterior(covariance(alike[rows], names, doublings), noise, above)
    own = np.repeat(alike[:1], len(types), axis=0)
    mean, variance = found.of(covariance(own, types, np.full(len(types), np.log2(scale_factor))), prior)
    return PRIOR_LOG_RATIO + mean, np.sqrt(variance)
