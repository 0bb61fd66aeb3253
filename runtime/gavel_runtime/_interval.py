"""How often a checkpoint for safety pays: after Young and Daly, from what one costs and how often gangs are lost."""

from math import sqrt

FIRST_S = 60.0  # until a checkpoint was written nobody knows what one costs
LEAST_S, MOST_S = 5.0, 3600.0


def checkpoint_interval_s(cost_s: float, time_to_loss_s: float) -> float:
    """Return the seconds of training from one checkpoint to the next that waste the least time, within LEAST_S, MOST_S.

    `cost_s`: how long the training stands still for one; `time_to_loss_s`: the mean time until the gang is lost.
    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006), eq. 37.
    """
    if cost_s >= 2 * time_to_loss_s:
        best_s = time_to_loss_s
    else:
        part = sqrt(cost_s / (2 * time_to_loss_s))
        best_s = sqrt(2 * cost_s * time_to_loss_s) * (1 + part / 3 + part * part / 9) - cost_s
    return min(MOST_S, max(LEAST_S, best_s))
