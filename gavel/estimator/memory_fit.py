"""Which two jobs fit together into the memory of one accelerator."""

from collections.abc import Mapping, Sequence

import numpy as np

from gavel.estimator.evidence import KNOWN_REPORTS, Evidence
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.tables import Key
from gavel.types import AcceleratorType, BoolArray, FloatArray


def needed_bytes(
    kinds: Sequence[tuple[str, int]],
    stated_bytes: FloatArray,
    types: Sequence[AcceleratorType],
    rates: Mapping[Key, Evidence],
) -> FloatArray:
    """Return what a rank of each of n (kind, scale factor) needs of one accelerator's memory on each type, (n, m).

    The most that was seen of the kind there once its rate is well known, or what its jobs state (`stated_bytes`, (n,),
    0: nothing), whichever is more; +inf if neither is known.
    """
    seen = np.array([[_seen_bytes(kind, size, name, rates) for name in types] for kind, size in kinds])
    needed = np.maximum(seen.reshape(len(kinds), len(types)), stated_bytes[:, None])
    return np.where(needed > 0, needed, np.inf)


def fits_together(needed: FloatArray, memory_bytes: Sequence[int]) -> BoolArray:
    """Return which two of n kinds fit into the memory of every accelerator of each type, (m, n, n).

    `needed` (n, m); `memory_bytes` (m,), 0: not known, where nothing is taken to fit.
    """
    both = needed.T[:, :, None] + needed.T[:, None, :]
    return np.asarray(both <= np.asarray(memory_bytes, dtype=float)[:, None, None])


def _seen_bytes(kind: str, size: int, name: AcceleratorType, rates: Mapping[Key, Evidence]) -> int:
    """Return what was seen of a kind; of a job's own kind, also what the others of its kind hold."""
    every = (rates.get((each, size, name)) for each in dict.fromkeys((kind, kind.partition(OWN_KIND)[0])))
    return max((each.held_bytes for each in every if each and each.count >= KNOWN_REPORTS), default=0)
