"""Throughput of gangs by a small communication model.

A gang of s computes as fast as s^growth single workers (0: every worker has its own batch and a step is the gang's;
1: the batch is divided) and spends `share` of a single worker's step on each of the 2 (s - 1) / s passes of a ring
all-reduce (Patarasuk and Yuan, JPDC '09):

    rate(s) = rate(1) s^growth / (1 + share 2 (s - 1) / s)

Both are unknown: every pair on a grid is a hypothesis. What a kind shows on any type weighs them for that kind; what
other kinds showed is where it starts.
"""

import numpy as np

from gavel.types import FloatArray, IntArray

MODEL_ERROR = 0.1  # of log(rate(s) / rate(1)) per doubling, what two parameters do not explain
PRIOR_KINDS = 0.2  # weight of "anything goes" against the kinds measured so far

_growth, _share = (
    grid.ravel()
    for grid in np.meshgrid(
        np.linspace(0.0, 1.2, 7), np.concatenate([[0.0], np.geomspace(0.02, 20.0, 15)]), indexing="ij"
    )
)
HYPOTHESES = len(_growth)


def log_speedup(sizes: IntArray) -> FloatArray:
    """log(rate(s) / rate(1)) under each hypothesis, (H, S)."""
    passes = 2 * (sizes - 1) / sizes
    speedup: FloatArray = _growth[:, None] * np.log(sizes) - np.log1p(_share[:, None] * passes)
    return speedup


def weigh(log_rate: FloatArray, variance: FloatArray, sizes: IntArray) -> FloatArray:
    """Weights (K, H) of the hypotheses for each of K kinds from rates (K, m, S) on m types, NaN where not measured."""
    known = np.isfinite(log_rate)
    kind, on_type = np.nonzero(known.sum(axis=2) >= 2)
    evidence = np.zeros((len(log_rate), HYPOTHESES))
    if len(kind):
        # A type's own level is free: what counts is the spread of log(rate) - log(speedup) over the sizes.
        trust = known[kind, on_type] / (np.where(known, variance, 1.0)[kind, on_type] + _model_variance(sizes, 1))
        rates = np.where(known, log_rate, 0.0)[kind, on_type]
        speedup = log_speedup(sizes).T
        squares = (trust * rates**2).sum(axis=1)[:, None] - 2 * (trust * rates) @ speedup + trust @ speedup**2
        sums = (trust * rates).sum(axis=1)[:, None] - trust @ speedup
        starts = np.flatnonzero(np.diff(kind, prepend=-1))  # the rows of a kind follow each other
        fit = squares - sums**2 / trust.sum(axis=1)[:, None]
        evidence[kind[starts]] = -0.5 * np.add.reduceat(fit, starts, axis=0)
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    measured = np.unique(kind)
    shown = likelihood[measured] / likelihood[measured].sum(axis=1, keepdims=True)
    prior = PRIOR_KINDS / HYPOTHESES + shown.sum(axis=0)
    weights = likelihood * prior
    normalised: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return normalised


def gain(weights: FloatArray, from_size: int, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of log(rate(s) / rate(from)) for each row of `weights` and each size, (K, S) each."""
    gains = log_speedup(sizes) - log_speedup(np.array([from_size]))
    mean = weights @ gains
    spread = np.maximum(weights @ gains**2 - mean**2, 0.0)
    return mean, spread + _model_variance(sizes, from_size)


def _model_variance(sizes: IntArray, from_size: int) -> FloatArray:
    variance: FloatArray = (MODEL_ERROR * np.log2(sizes / from_size)) ** 2
    return variance
