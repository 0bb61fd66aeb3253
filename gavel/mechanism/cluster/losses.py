"""How often gangs are lost on this cluster, which says how often a checkpoint for safety pays."""

from collections.abc import Iterable

from gavel.types import SECONDS_PER_HOUR, Usage

PRIOR_LOSSES, PRIOR_WORKER_HOURS = 1.0, 1000.0
"""What is assumed to have been seen before the first measurement: a Gamma prior of the rate."""


def time_to_loss_s(usage: Iterable[Usage], workers: int) -> float:
    """Return the mean seconds until a gang on so many workers is lost: of lost nodes, and of workers held, in `usage`.

    Losses are taken as a Poisson process, as often for each worker: the posterior mean of its rate counts.
    """
    parts = list(usage)
    losses = PRIOR_LOSSES + sum(each.lost_gangs for each in parts)
    hours = PRIOR_WORKER_HOURS + sum(each.worker_hours for each in parts)
    return hours * SECONDS_PER_HOUR / (losses * max(1, workers))
