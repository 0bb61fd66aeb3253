"""How long policies take a job to be whose program has not said yet how many steps it has."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import numpy as np

from gavel.types import SECONDS_PER_HOUR, FloatArray

ASSUMED_S = SECONDS_PER_HOUR
"""How long a job is taken to be, alone on its fastest type, while no job of its kind has a known length."""


UNSAID_ERROR = 1.0  # one deviation of the logarithm of a length that nobody has said
ERROR_DIGITS = 1  # an error of less than 0.05 says nothing about the order of jobs, and a new report changes none


def length_error(total_steps: FloatArray, rate_error: FloatArray) -> FloatArray:
    """Return one deviation of the logarithm of the time that each of n jobs has left, (n,), in tenths.

    `total_steps` (n,) is NaN where nobody has said it; `rate_error` (n,) is that of the job's fastest rate.
    """
    error: FloatArray = np.hypot(rate_error, np.where(np.isnan(total_steps), UNSAID_ERROR, 0.0))
    return np.round(error, ERROR_DIGITS)


def steps_left(
    total_steps: FloatArray, steps_reported: FloatArray, *, kinds: Sequence[str], steps_per_s: FloatArray
) -> FloatArray:
    """Return how many steps each of n jobs has left, (n,): what nobody has reported of its `total_steps`.

    A job whose `total_steps` is NaN, not known yet, is taken to be as long as the median of those jobs here that have
    its kind and a known length; without one, as what its fastest type does in an hour (`steps_per_s`, (n, m)). What it
    has done is not taken off: nothing says that its end is nearer. docs/decisions/0012-the-length-of-a-job.md.
    """
    is_unknown = np.isnan(total_steps)
    if not is_unknown.any():
        return total_steps - steps_reported
    of_kind: dict[str, list[float]] = defaultdict(list)
    for row in np.flatnonzero(~is_unknown).tolist():
        of_kind[kinds[row]].append(float(total_steps[row]))
    left = np.where(is_unknown, steps_per_s.max(axis=1, initial=0.0) * ASSUMED_S, total_steps - steps_reported)
    for row in np.flatnonzero(is_unknown).tolist():
        if lengths := of_kind.get(kinds[row]):
            left[row] = median(lengths)
    return left
