"""Kinds of elastic jobs: their names end with the global batch, as that is what a step is at every size."""

import re

_BATCH = re.compile(r"-global-batch-\d+(?=#|$)")


def elastic_kind(kind: str, global_batch: int) -> str:
    """Return the kind of a job whose steps have so many samples at every size; 0: the kind as it is."""
    return f"{kind}-global-batch-{global_batch}" if global_batch else kind


def rigid_kind(kind: str) -> str:
    """Return the kind without its global batch."""
    return _BATCH.sub("", kind)


def divides_its_batch(kind: str) -> bool:
    """Return True if the jobs of the kind divide the same samples among however many workers they have."""
    return _BATCH.search(kind) is not None
