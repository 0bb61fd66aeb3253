"""Which samples a rank takes in a step, so that a step is the same at every size of the gang."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples that a rank takes at once: `samples` are their numbers, counted from the first of step 0.

    `weight` is their part of the step's global batch: over all micro-batches of all ranks it sums to 1.
    """

    samples: range
    weight: float


def micro_batches(start: int, samples: int, *, rank: int, world_size: int, at_most: int | None) -> Iterator[MicroBatch]:
    """Yield the micro-batches of a rank in an update, of about the same size, at most `at_most` samples each.

    The update has so many `samples` from number `start` on; ranks take one run of them after another, which differ by
    one sample at most.
    """
    first, last = (samples * each // world_size for each in (rank, rank + 1))
    own = last - first
    parts = _parts(own, at_most)
    for part in range(parts):
        begin, end = (first + own * each // parts for each in (part, part + 1))
        yield MicroBatch(range(start + begin, start + end), (end - begin) / samples)


def copy_of(rank: int, world_size: int, model_parallel_size: int) -> tuple[int, int]:
    """Return the copy of the model of which a rank holds a part, and how many there are.

    Consecutive ranks hold a copy together. Raises ValueError if the ranks are no whole number of copies.
    """
    if model_parallel_size < 1 or world_size % model_parallel_size:
        raise ValueError(f"model_parallel_size: {model_parallel_size} does not divide the {world_size} ranks")
    return rank // model_parallel_size, world_size // model_parallel_size


def parts_of_gang(samples: int, world_size: int, at_most: int | None) -> int:
    """Return how many micro-batches all ranks of an update take together."""
    ends = [samples * each // world_size for each in range(world_size + 1)]
    return sum(_parts(end - begin, at_most) for begin, end in pairwise(ends))


def _parts(samples: int, at_most: int | None) -> int:
    return -(-samples // (at_most or samples or 1))
