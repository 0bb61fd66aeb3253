"""Which compositions are worth more simulations: successive halving by paired differences on common futures.

After each stage those are dropped whose gain over the incumbent, with two standard errors, is below the best gain
(Karnin et al., 2013, for the halving; common random numbers make the differences comparable).
"""

import numpy as np

from gavel.types import BoolArray, FloatArray

STAGES = (2, 4, 8)  # futures that those which are left have been tried on after each stage
ERRORS = 2.0


def gains(costs: FloatArray, incumbent: int) -> FloatArray:
    """Return by how much less each composition costs than the incumbent in each future, (n, K), of `costs` (n, K)."""
    return np.asarray(costs[incumbent] - costs)


def standard_error(gain: FloatArray) -> FloatArray:
    """Return the standard error of the mean over the last axis; +inf for a single future."""
    count = gain.shape[-1]
    if count < 2:
        return np.full(gain.shape[:-1], np.inf)
    return np.asarray(gain.std(axis=-1, ddof=1) / np.sqrt(count))


def surviving(costs: FloatArray, incumbent: int) -> BoolArray:
    """Return which of n compositions stay in the race, (n,), after `costs` (n, K); the incumbent always does."""
    gain = gains(costs, incumbent)
    mean = gain.mean(axis=1)
    stays = mean + ERRORS * standard_error(gain) >= mean.max()
    stays[incumbent] = True
    return np.asarray(stays)
