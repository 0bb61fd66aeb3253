"""Throughput of gangs by a small communication model.

A gang of s computes as fast as s^growth single workers (0: every worker has its own batch and a step is the gang's;
1: the batch is divided) and spends `share` of a single worker's step on each of the 2 (s - 1) / s passes of a ring
all-reduce (Patarasuk and Yuan, JPDC '09):

    rate(s) = rate(1) s^growth / (1 + share 2 (s - 1) / s)

Both are unknown: every pair of values on a grid is a hypothesis. The rates of a kind on any type weigh the hypotheses
for that kind; the rates of the other kinds are the prior. Kinds of elastic jobs divide their batch, as their names say:
their growth is near 1, and before anything is known they are taken to scale well, so that they are tried.
"""

import numpy as np

from gavel.types import BoolArray, FloatArray, IntArray

MODEL_ERROR = 0.1  # of log(rate(s) / rate(1)) per doubling, what two parameters do not explain
PRIOR_KINDS = 0.2  # weight of "anything goes" against the kinds measured so far

_growth, _share = (
    grid.ravel()
    for grid in np.meshgrid(
        np.linspace(0.0, 1.2, 7), np.concatenate([[0.0], np.geomspace(0.02, 20.0, 15)]), indexing="ij"
    )
)
HYPOTHESES = len(_growth)
LEAST_GROWTH, MOST_GROWTH = 0.8, 1.0  # of a gang that divides the samples of a step
SHARE_OF_DIVIDED = 0.25  # of a worker's step that a pass is taken to need there; the prior falls with it
SURPRISE = 1e-3  # weight of any other hypothesis there
_of_divided: FloatArray = SURPRISE + np.where(
    (_growth > LEAST_GROWTH - 0.01) & (_growth < MOST_GROWTH + 0.01), np.exp(-_share / SHARE_OF_DIVIDED), 0.0
)


def log_speedup(sizes: IntArray) -> FloatArray:
    """Return log(rate(s) / rate(1)) under each hypothesis, (H, S)."""
    passes = 2 * (sizes - 1) / sizes
    speedup: FloatArray = _growth[:, None] * np.log(sizes) - np.log1p(_share[:, None] * passes)
    return speedup


def weigh(log_rate: FloatArray, variance: FloatArray, sizes: IntArray, is_divided: BoolArray) -> FloatArray:
    """Return the weights (K, H) of the hypotheses for K kinds; rates (K, m, S) on m types, NaN where not measured.

    `is_divided` (K,): the gangs of the kind divide the samples of a step.
    """
    is_measured = np.isfinite(log_rate)
    trust = is_measured / (np.where(is_measured, variance, 1.0) + _model_variance(sizes, 1))
    misfit = _misfit(np.where(is_measured, log_rate, 0.0), trust, log_speedup(sizes))
    likelihood = np.exp(-0.5 * (misfit - misfit.min(axis=1, keepdims=True)))
    measured = likelihood[(is_measured.sum(axis=2) >= 2).any(axis=1) & ~is_divided]
    prior = PRIOR_KINDS / HYPOTHESES + (measured / measured.sum(axis=1, keepdims=True)).sum(axis=0)
    weights = likelihood * np.where(is_divided[:, None], _of_divided, prior)
    normalised: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return normalised


def _misfit(rates: FloatArray, trust: FloatArray, speedup: FloatArray) -> FloatArray:
    """Return the weighted squared error of each hypothesis, (K, H), less a constant of each kind.

    `trust` (K, m, S) is the precision of the rates, `speedup` (H, S). The level of a type is free: what counts is how
    log(rate) - log(speedup) varies over the sizes. That is a quadratic form in the speedup, so types are summed first.
    """
    share = trust / np.maximum(trust.sum(axis=2, keepdims=True), np.finfo(float).tiny)
    linear = (trust * (rates - (share * rates).sum(axis=2, keepdims=True))).sum(axis=1)
    square = trust.sum(axis=1)[:, :, None] * np.eye(trust.shape[2]) - np.swapaxes(share, 1, 2) @ trust
    products = speedup[:, :, None] * speedup[:, None, :]
    misfit: FloatArray = np.tensordot(square, products, axes=([1, 2], [1, 2])) - 2 * linear @ speedup.T
    return misfit


def gain(weights: FloatArray, from_size: int, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of log(rate(s) / rate(from)) for each row of `weights` and each size, (K, S) each."""
    gains = log_speedup(sizes) - log_speedup(np.array([from_size]))
    mean = weights @ gains
    spread = np.maximum(weights @ gains**2 - mean**2, 0.0)
    return mean, spread + _model_variance(sizes, from_size)


def _model_variance(sizes: IntArray, from_size: int) -> FloatArray:
    variance: FloatArray = (MODEL_ERROR * np.log2(sizes / from_size)) ** 2
    return variance
