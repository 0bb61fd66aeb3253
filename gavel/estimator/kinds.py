"""The speed of a job kind on all accelerator types from its speed on some: low-rank completion in log space.

log(steps/s) of kind k on type t is level_k + mean_t + family_kt + own_kt. The family and own parts share one covariance
over types, learned from all kinds (its rank is the number of ways in which kinds differ). A family is the kinds whose
names differ only by a size: `LM (batch size 5)` and `LM (batch size 80)`, `mlp-b256` and `mlp-b1024`; the closer the
sizes, the more they have in common. So a kind measured on few types is estimated from its family, a family from all
kinds, and all of them from the peak rates of the hardware.

Nothing is assumed of a family's level; inside the family, levels follow the size along a smooth curve. A kind that is
slower than the curve on one type is taken to be slower there more than elsewhere. The level of a kind far off the curve
(the number in its name need not be a batch size), and of a job's own kind, is free.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gavel.types import BoolArray, FloatArray

OWN_KIND = "#"  # between the name of a kind and the id of a job that differs from the rest of it
LEVEL = 10.0  # deviation of a level before any measurement: a flat prior
SLOPE, CURVE, OWN_LEVEL = 1.0, 0.5, 0.1  # deviations of a family's levels: per log size, of its curve, of one kind
OFF, DEVIATIONS = 3.0, 3.0  # a level off the curve by this factor and so many deviations follows none
DOUBTFUL, DOUBT = 2.0, 0.7  # one off by more than this factor is held less, by this share of what is beyond it
FAMILY_SHARE = 0.95  # of the variance over types: what kinds of a family and of one size have in common
SIZE_LENGTH = 1.5  # in logarithms: how far apart in size relatives may be
RELATIVES_MAX = 12
OWN_ERROR = 0.05  # of one kind on one type beyond that
TYPE_ERROR = 0.6  # of a type's peak rate as a guess of its speed
PRIOR_KINDS = 0.3  # weight of that guess
ITERATIONS = 4  # of expectation and maximisation; it starts near
NAMES_MAX = 1 << 16  # cached names of kinds
UNKNOWN = 1e6  # variance of what was not measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Relative speeds of all kinds over m types: `mean` (m,) and `covariance` (m, m) of log(steps/s) less the level."""

    mean: FloatArray
    covariance: FloatArray


@lru_cache(NAMES_MAX)
def family_of(kind: str) -> str:
    """Return the name without its sizes: `mlp` of `mlp-b1024` (or of a job's own kind), `LM` of `LM (batch size 8)`."""
    kind = kind.partition(OWN_KIND)[0]
    return re.sub(r"(\s*\(?\s*batch size)?[-_ ]*[a-z]?\d+[kKmM]?\)?$", "", kind) or kind


def population(log_rate: FloatArray, variance: FloatArray, peaks: FloatArray) -> Population:
    """Return the population learned from log(steps/s) of K kinds, (K, m), NaN where not measured.

    `variance` (K, m) is that of the rates; `peaks` (m,) are the logarithms of the types' peak rates.
    """
    types = len(peaks)
    centred = np.eye(types) - 1 / types
    guess = centred * TYPE_ERROR**2
    believed = Population(mean=peaks - peaks.mean(), covariance=guess)
    counts = np.isfinite(log_rate).sum(axis=1) >= 2
    if types < 2 or not counts.any():
        return believed
    relative = log_rate[counts] - _levels(log_rate[counts])
    for _ in range(ITERATIONS):
        prior = believed.covariance + LEVEL**2 + OWN_ERROR**2 * np.eye(types)
        means, covariances = _conditioned(believed.mean, prior, relative, variance[counts])
        means = means @ centred
        weight = len(means) + PRIOR_KINDS
        mean = (means.sum(axis=0) + PRIOR_KINDS * (peaks - peaks.mean())) / weight
        spread = (means - mean).T @ (means - mean) + centred @ covariances.sum(axis=0) @ centred
        # The peaks are a guess of a type's mean, not of how much kinds differ on it: here they count as one kind only.
        believed = Population(mean=mean, covariance=(spread + guess) / (len(means) + 1))
    return believed


def completed(
    believed: Population,
    log_rate: FloatArray,
    variance: FloatArray,
    kinds: Sequence[str],
    is_apart: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """Return mean (K, m) and covariance (K, m, m) of log(steps/s) of every kind, given its and its relatives' rates.

    `is_apart` (K,) marks kinds whose level is not used for their relatives. The level of a kind means nothing if
    neither the kind nor its family has a rate.
    """
    means, covariances = np.empty_like(log_rate), np.empty((*log_rate.shape, log_rate.shape[1]))
    by_count: dict[int, list[list[int]]] = defaultdict(list)
    for relatives in _relatives(kinds):
        by_count[len(relatives)].append(relatives)
    sizes = np.array([log_size(kind) for kind in kinds])
    for groups in by_count.values():
        rows = np.array(groups)
        level = _levels((log_rate - believed.mean)[rows].reshape(len(rows), -1))[:, :, None]
        relative = log_rate[rows] - level
        spread = _spread_of_levels(believed, relative, sizes[rows], is_apart[rows])
        centred_means, covariances[rows] = _together(believed, relative, variance[rows], sizes[rows], spread)
        means[rows] = centred_means + level
    return means, covariances


def _levels(log_rate: FloatArray) -> FloatArray:
    """Return the mean of each row's measured rates, (K, 1); 0 without any. Around it, a flat prior shrinks nothing."""
    is_measured = np.isfinite(log_rate)
    counts = np.maximum(1, is_measured.sum(axis=1, keepdims=True))
    levels: FloatArray = np.where(is_measured, log_rate, 0.0).sum(axis=1, keepdims=True) / counts
    return levels


def _relatives(kinds: Sequence[str]) -> list[list[int]]:
    """Return groups of rows of one family, neighbours in size together, at most RELATIVES_MAX each."""
    families: dict[str, list[int]] = defaultdict(list)
    for row in sorted(range(len(kinds)), key=lambda row: (log_size(kinds[row]), kinds[row])):
        families[family_of(kinds[row])].append(row)
    return [
        rows[start : start + RELATIVES_MAX]
        for rows in families.values()
        for start in range(0, len(rows), RELATIVES_MAX)
    ]


@lru_cache(NAMES_MAX)
def log_size(kind: str) -> float:
    """Return the logarithm of the number at the end of the name; 0 without one."""
    number = re.search(r"(\d+)\)?$", kind.partition(OWN_KIND)[0])
    return float(np.log(max(1, int(number.group(1))))) if number and number.end(1) > number.start(1) else 0.0


def _spread_of_levels(believed: Population, log_rate: FloatArray, sizes: FloatArray, is_apart: BoolArray) -> FloatArray:
    """Return the prior covariance of the levels of g families of n kinds, (g, n, n): a smooth curve over the size.

    The level of a kind is free if its mean rate is off by a factor of `OFF` or more from what its relatives predict. It
    is held the less to theirs the nearer it comes to that. All are free in a family of which half are.
    """
    along = CURVE**2 * _near(sizes) + SLOPE**2 * _products(sizes - sizes.mean(axis=1, keepdims=True))
    levels: FloatArray = LEVEL**2 + along + _diagonal(np.full(sizes.shape, OWN_LEVEL**2))
    is_measured = np.isfinite(log_rate)
    shown = np.where(is_measured, log_rate - believed.mean, 0.0).sum(axis=2) / np.maximum(1, is_measured.sum(axis=2))
    level_variance = (1 - FAMILY_SHARE) * np.trace(believed.covariance) / log_rate.shape[2] + OWN_ERROR**2
    precision = np.linalg.inv(
        levels + _diagonal(np.where(is_measured.any(axis=2) & ~is_apart, level_variance, UNKNOWN))
    )
    own = np.einsum("gii->gi", precision)
    gap = (precision @ shown[:, :, None])[:, :, 0] / own  # to what the relatives predict
    off, deviation = np.abs(gap), 1 / np.sqrt(own)
    is_free = is_apart | (off > np.maximum(np.log(OFF), DEVIATIONS * deviation))
    is_free |= 2 * is_free.sum(axis=1, keepdims=True) >= sizes.shape[1]  # a family whose levels follow no curve
    excess = np.maximum(0.0, off - np.maximum(np.log(DOUBTFUL), deviation))
    return levels + _diagonal(np.where(is_free, LEVEL, DOUBT * excess) ** 2)


def _near(sizes: FloatArray) -> FloatArray:
    """Return how alike kinds with these logarithms of sizes are, (g, n, n), 1 on the diagonal."""
    alike: FloatArray = np.exp(-((sizes[:, :, None] - sizes[:, None, :]) ** 2) / (2 * SIZE_LENGTH**2))
    return alike


def _products(values: FloatArray) -> FloatArray:
    products: FloatArray = values[:, :, None] * values[:, None, :]
    return products


def _together(
    believed: Population, log_rate: FloatArray, variance: FloatArray, sizes: FloatArray, levels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return means (g, n, m) and covariances (g, n, m, m) of g families of n kinds: rates (g, n, m), sizes (g, n).

    `levels` (g, n, n): prior covariance of the levels.
    """
    families, count, types = log_rate.shape
    shared = FAMILY_SHARE * _near(sizes) + (1 - FAMILY_SHARE) * np.eye(count)
    prior = np.einsum("gij,tu->gitju", shared, believed.covariance)
    prior += levels[:, :, None, :, None]
    prior += np.einsum("ij,tu->itju", np.eye(count), OWN_ERROR**2 * np.eye(types))
    flat = (families, count * types)
    means, covariances = _conditioned(
        np.tile(believed.mean, count), prior.reshape(*flat, -1), log_rate.reshape(flat), variance.reshape(flat)
    )
    blocks = covariances.reshape(families, count, types, count, types)
    own = np.einsum("gitiu->gitu", blocks)
    return means.reshape(log_rate.shape), own


def _conditioned(
    mean: FloatArray, covariance: FloatArray, log_rate: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return means (K, m) and covariances (K, m, m), given the rates (K, m) that are not NaN.

    The prior's mean is (m,) or (K, m), its covariance (m, m) or (K, m, m).
    """
    is_measured = np.isfinite(log_rate)
    gap = np.where(is_measured, log_rate - mean, 0.0)
    noise = np.where(is_measured, variance, UNKNOWN)
    gain = covariance @ np.linalg.inv(covariance + _diagonal(noise))
    posterior = mean + (gain @ gap[:, :, None])[:, :, 0]
    return posterior, covariance - gain @ covariance


def _diagonal(values: FloatArray) -> FloatArray:
    matrices: FloatArray = values[:, :, None] * np.eye(values.shape[1])
    return matrices
