"""The kill switch: where what is in force costs more than the safe composition would have, the safe one takes over."""

from collections.abc import Sequence
from dataclasses import dataclass

EPOCHS = 3  # that are looked at
EXCESS = 0.10  # of the real cost over the replayed cost of the safe composition
COOL_DOWN_EPOCHS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCost:
    """What an epoch has cost, and what the safe composition would have, replayed from the same state."""

    real: float
    safe: float


def must_fall_back(epochs: Sequence[EpochCost]) -> bool:
    """Return True if the last epochs, EPOCHS of them, cost more together than the safe composition would have."""
    last = epochs[-EPOCHS:]
    return len(last) == EPOCHS and sum(each.real for each in last) > (1 + EXCESS) * sum(each.safe for each in last)
