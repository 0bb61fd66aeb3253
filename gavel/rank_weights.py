"""What the speed of a job counts by the rank of its length: the shortest jobs count most."""

import numpy as np

from gavel.types import FloatArray

CONCAVITY = 0.4  # q: a job's speed grows as its share to this power
EVEN_PART = 0.3  # of each job's weight, alike for all, where many wait


def rank_weight(length: FloatArray, even: float) -> FloatArray:
    """Return v of n jobs of these lengths, (n,), 1 in the mean; equal lengths have equal weights.

    theta_i = (i/n)^e - ((i-1)/n)^e with e = 1 / (1 - q), i = 1 the largest length of n, equals alike;
    v = theta^(1-q), of which the part `even` is its mean. heSRPT shows that theta are the shares of least mean response
    time for n jobs of known size whose speed is their share to the power q.
    """
    count = len(length)
    if not count:
        return np.ones(0)
    order = np.argsort(-length)
    ordered = length[order]
    is_shorter = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
    sizes = np.diff(np.flatnonzero(is_shorter))  # of the groups of equal lengths
    until = np.cumsum(sizes) / count
    exponent = 1 / (1 - CONCAVITY)
    theta = np.diff(until**exponent, prepend=0.0) / sizes
    weight = np.empty(count)
    weight[order] = np.repeat(theta ** (1 - CONCAVITY), sizes)
    mixed: FloatArray = (1 - even) * weight / weight.mean() + even
    return mixed
