"""Which samples a rank takes in a step, so that a step is the same at every size of the gang."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples that a rank takes at once: `samples` are their numbers, counted from the first of step 0.

    `weight` is their part of the step's global batch: over all micro-batches of all ranks it sums to 1.
    """

    samples: range
    weight: float


def micro_batches(
    step: int, global_batch: int, *, rank: int, world_size: int, at_most: int | None
) -> Iterator[MicroBatch]:
    """Yield the micro-batches of a rank in a step, of about the same size, at most `at_most` samples each.

    Step t has the samples from t * global_batch on; ranks take one run of them after another, which differ by one
    sample at most.
    """
    first, last = (global_batch * each // world_size for each in (rank, rank + 1))
    own = last - first
    parts = -(-own // (at_most or own or 1))
    for part in range(parts):
        begin, end = (first + own * each // parts for each in (part, part + 1))
        yield MicroBatch(range(step * global_batch + begin, step * global_batch + end), (end - begin) / global_batch)
