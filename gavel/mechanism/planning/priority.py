"""Which job goes first on which accelerator type, by the setting `planner`; arrays are (jobs, types).

`lag`: the rounds that a job should have received by its target fraction, less those that it was given. Gavel
(OSDI '20, section 5) divides fractions by the share received; the difference orders jobs in the same way and, unlike a
ratio, stays bounded and comparable across types.
`published`: the ratio as the original code computes it, since the last solve, one type after the other.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gavel.types import BoolArray, FloatArray, IntArray

LAG_ROUNDS_MAX = 3.0  # larger lags, of either sign, are cut: the allocation has changed since
WAITING_ROUNDS = 0.1  # above what a gang at its limit claims for its place: then one that waits comes first
STAYING_ROUNDS = 0.01  # among nearly equal claims nobody moves
EARLIER_ROUNDS = 1e-3  # among equal ones the earlier job goes first
HEAD_START_ROUNDS = 0.5  # every job's clock starts here, so that no ratio divides by zero


def accrue(
    lag_rounds: FloatArray, target_fraction: FloatArray, limit_rounds: FloatArray, *, beyond_rounds: float = 0.0
) -> FloatArray:
    """Return the lags with the coming round's target fractions added, (n, m) rounds.

    They are cut at `limit_rounds` (n, m). On the other side they are cut at LAG_ROUNDS_MAX plus `beyond_rounds`, how
    much longer a gang may stay than its lag asks for.
    """
    return np.clip(lag_rounds + target_fraction, -(LAG_ROUNDS_MAX + beyond_rounds), limit_rounds)


def limits(size: IntArray, kept: IntArray, capacity_workers: IntArray, *, beyond_rounds: float = 0.0) -> FloatArray:
    """Return how large the lag of each job on each type may become, (n, m) rounds.

    A gang that runs there: LAG_ROUNDS_MAX plus `beyond_rounds`. One that waits may lag so much more that it is worth
    more than those at their limit that have to go for it. Otherwise gangs that run in every round, and leave too few
    workers for it, would keep it out for ever.
    `size` (n,) workers; `kept` (n,) column of the type that the job holds, -1: none.
    """
    most = LAG_ROUNDS_MAX + beyond_rounds
    # Without the last of the gangs that go there is one worker too few at least, and the last has the largest at most.
    gone = np.minimum(size[:, None] - 1 + size.max(initial=1), capacity_workers[None, :])
    times = np.sqrt(np.maximum(1.0, gone / size[:, None]))
    limit = np.asarray((most + beyond_rounds) * times + WAITING_ROUNDS)
    held = np.flatnonzero(kept >= 0)
    limit[held, kept[held]] = most
    return limit


def urgency(claims: FloatArray, kept: IntArray) -> FloatArray:
    """Return how urgent it is that each job runs on each type now, (n, m), from the rounds that it claims there.

    It is the square of the claim: a job that has waited long goes before two that have not. Among equal claims a gang
    that can stay where it is comes first, then the earlier job. `kept` (n,): column of the type that the job holds,
    -1: none. No two values are equal, else prices could not tell jobs of one kind apart.
    """
    count, types = claims.shape
    rows = np.arange(count)
    step = EARLIER_ROUNDS / max(1, count)
    apart = np.outer(rows, np.sqrt(np.arange(2, 2 + types))) % 1.0  # fixed, and as good as random
    least = np.where(claims > 0, claims, 0.0) + step * ((count - rows)[:, None] + 0.5 * apart)
    held = kept >= 0
    least[rows[held], kept[held]] += STAYING_ROUNDS
    return np.asarray(np.square(least))


def claims_published(
    target_fraction: FloatArray, received_rounds: FloatArray, usable: BoolArray, columns: list[int]
) -> Iterator[tuple[int, list[int]]]:
    """Yield (column, rows) for each type in the order of `columns`.

    Rows are ordered by X / (rounds received since the solve), then by X, the target fraction, the largest first. A job
    with a fraction of zero may still get what is left of a type. The ratio leaves out the rounds received by all jobs
    on the type together, which are the same for each of them.
    """
    priority = target_fraction / (received_rounds + HEAD_START_ROUNDS)
    for column in columns:
        order = np.lexsort((-target_fraction[:, column], -priority[:, column]))
        yield column, order[usable[order, column]].tolist()


def fastest_first(rates: FloatArray) -> list[int]:
    """Return the columns of the types by mean relative speed (T_mj / max_j T_mj), the largest first."""
    best = rates.max(axis=1, keepdims=True, initial=0.0)
    speed: Any = np.divide(rates, best, out=np.zeros_like(rates), where=best > 0).sum(axis=0)
    return np.argsort(-speed, kind="stable").tolist()  # type: ignore[no-any-return]


def shuffled(columns: list[int], round_index: int) -> list[int]:
    """Return the columns in another order each round, for allocations that do not tell types apart.

    The original draws the order at random; here the same `round_index` gives the same order, so that a round can be
    planned again.
    """
    rest, number = list(columns), round_index * 2_654_435_761 % 2**32  # Knuth's multiplicative hash
    order = []
    while rest:
        number, index = divmod(number, len(rest))
        order.append(rest.pop(index))
    return order
