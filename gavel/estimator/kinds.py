"""What the speed of a job kind on some accelerator types says of the others: low-rank completion in log space.

log(steps/s) of kind k on type t is level_k + mean_t + family_kt + own_kt: family and own parts share one covariance
over types, learned from all kinds (its rank is how many ways there are to differ). A family is what kinds have in
common by name: `LM (batch size 5)` and `LM (batch size 80)`, `mlp-b256` and `mlp-b1024`, the more the closer their
sizes. Kinds measured on few types thus lean on their family, families on everything known, all of it on the hardware's
peaks.

Nothing is assumed of a family's level; inside it, levels follow the size along a smooth curve. A kind that is slower on
one type than that curve says is so on this type more than on the others. The level of a kind that is far off (names
need not tell a batch size), and of a job's own kind, is free.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gavel.types import BoolArray, FloatArray

OWN_KIND = "#"  # between a kind and the job that differs from the rest of it
LEVEL = 10.0  # deviation of a level of which nothing is known: flat
SLOPE, CURVE, OWN_LEVEL = 1.0, 0.5, 0.1  # deviations of a family's levels: per log size, of its curve, of one kind
OFF, DEVIATIONS = 3.0, 3.0  # a level off the curve by this factor and so many deviations follows none
FAMILY_SHARE = 0.95  # of the variance over types: what kinds of a family and of one size have in common
SIZE_LENGTH = 1.5  # in logarithms: how far apart in size relatives may be
RELATIVES_MAX = 12
OWN_ERROR = 0.05  # of one kind on one type beyond that
TYPE_ERROR = 0.6  # of a type's peak rate as a guess of its speed
PRIOR_KINDS = 0.3  # weight of that guess
ITERATIONS = 4  # of expectation and maximisation; it starts near
NAMES_MAX = 1 << 16  # remembered, with what they tell
UNKNOWN = 1e6  # variance of what was not measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Relative speeds over m types of any kind: `mean` (m,) and `covariance` (m, m) of log(steps/s) less the level."""

    mean: FloatArray
    covariance: FloatArray


@lru_cache(NAMES_MAX)
def family_of(kind: str) -> str:
    """The name without its sizes: `mlp` of `mlp-b1024` (also of one job of it), `LM` of `LM (batch size 80)`."""
    kind = kind.partition(OWN_KIND)[0]
    return re.sub(r"(\s*\(?\s*batch size)?[-_ ]*[a-z]?\d+[kKmM]?\)?$", "", kind) or kind


def population(log_rate: FloatArray, variance: FloatArray, peaks: FloatArray) -> Population:
    """Learned from (K, m) rates of kinds, NaN where not measured; `peaks` (m,): logarithm of what hardware promises."""
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
        # The guess of a type's mean is no guess of how much kinds differ on it: it counts as one kind only.
        believed = Population(mean=mean, covariance=(spread + guess) / (len(means) + 1))
    return believed


def completed(
    believed: Population,
    log_rate: FloatArray,
    variance: FloatArray,
    kinds: Sequence[str],
    is_apart: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """Mean (K, m) and covariance (K, m, m) of log(steps/s) of every kind, given its own rates and its relatives'.

    `is_apart` (K,): kinds whose level says nothing of their relatives'. A kind of which and of whose family no rate is
    known has a level that means nothing.
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
        found, covariances[rows] = _together(believed, relative, variance[rows], sizes[rows], spread)
        means[rows] = found + level
    return means, covariances


def _levels(log_rate: FloatArray) -> FloatArray:
    """Mean of what is known of each row, (K, 1); 0 where nothing is. Near it, a flat prior shrinks nothing."""
    known = np.isfinite(log_rate)
    counts = np.maximum(1, known.sum(axis=1, keepdims=True))
    levels: FloatArray = np.where(known, log_rate, 0.0).sum(axis=1, keepdims=True) / counts
    return levels


def _relatives(kinds: Sequence[str]) -> list[list[int]]:
    """Rows by family, neighbours in size together, at most RELATIVES_MAX each."""
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
    """Logarithm of the number that the name ends in; 0: none."""
    number = re.search(r"(\d+)\)?$", kind.partition(OWN_KIND)[0])
    return float(np.log(max(1, int(number.group(1))))) if number and number.end(1) > number.start(1) else 0.0


def _spread_of_levels(believed: Population, log_rate: FloatArray, sizes: FloatArray, is_apart: BoolArray) -> FloatArray:
    """Prior covariance of the levels of g families of n kinds, (g, n, n): along the size, but free where that fits ill.

    It does where a kind's mean rate is off by a factor of `OFF` and more from what all others of its family promise.
    """
    along = CURVE**2 * _near(sizes) + SLOPE**2 * _products(sizes - sizes.mean(axis=1, keepdims=True))
    levels: FloatArray = LEVEL**2 + along + _diagonal(np.full(sizes.shape, OWN_LEVEL**2))
    known = np.isfinite(log_rate)
    shown = np.where(known, log_rate - believed.mean, 0.0).sum(axis=2) / np.maximum(1, known.sum(axis=2))
    doubt = (1 - FAMILY_SHARE) * np.trace(believed.covariance) / log_rate.shape[2] + OWN_ERROR**2
    precision = np.linalg.inv(levels + _diagonal(np.where(known.any(axis=2) & ~is_apart, doubt, UNKNOWN)))
    own = np.einsum("gii->gi", precision)
    gap = (precision @ shown[:, :, None])[:, :, 0] / own  # to what is expected without the kind itself
    is_free = is_apart | (np.abs(gap) > np.maximum(np.log(OFF), DEVIATIONS / np.sqrt(own)))
    return levels + _diagonal(np.where(is_free, LEVEL**2, 0.0))


def _near(sizes: FloatArray) -> FloatArray:
    """How alike kinds of these logarithms of sizes are, (g, n, n), 1 on the diagonal."""
    alike: FloatArray = np.exp(-((sizes[:, :, None] - sizes[:, None, :]) ** 2) / (2 * SIZE_LENGTH**2))
    return alike


def _products(values: FloatArray) -> FloatArray:
    products: FloatArray = values[:, :, None] * values[:, None, :]
    return products


def _together(
    believed: Population, log_rate: FloatArray, variance: FloatArray, sizes: FloatArray, levels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gaussians of g families of n kinds each: rates (g, n, m), sizes (g, n) -> (g, n, m), (g, n, m, m).

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
    """Gaussians (K, m) given the rates that are not NaN; mean (m,) or (K, m), covariance (m, m) or (K, m, m)."""
    known = np.isfinite(log_rate)
    gap = np.where(known, log_rate - mean, 0.0)
    noise = np.where(known, variance, UNKNOWN)
    gain = covariance @ np.linalg.inv(covariance + _diagonal(noise))
    posterior = mean + (gain @ gap[:, :, None])[:, :, 0]
    return posterior, covariance - gain @ covariance


def _diagonal(values: FloatArray) -> FloatArray:
    matrices: FloatArray = values[:, :, None] * np.eye(values.shape[1])
    return matrices
