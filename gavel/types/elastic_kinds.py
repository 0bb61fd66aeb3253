"""Kinds of elastic jobs: their names end with the global batch, as that is what a step is at every size.

Before it stands the largest batch that an update may have, if updates may grow: then one brings several steps.
"""

import re

_BATCH = re.compile(r"(?:-max-batch-\d+)?-global-batch-\d+(?=#|$)")
_PLAN = re.compile(r"\[[^\[\]#]*\](?=#|$)")


def elastic_kind(kind: str, global_batch: int, max_global_batch: int = 0) -> str:
    """Return the kind of a job whose steps have so many samples at every size; 0: the kind as it is.

    `max_global_batch`: what its updates may grow to; 0: they do not.
    """
    grows = f"-max-batch-{max_global_batch}" if max_global_batch else ""
    return f"{kind}{grows}-global-batch-{global_batch}" if global_batch else kind


def rigid_kind(kind: str) -> str:
    """Return the kind without its global batch, and without its execution plan."""
    return _PLAN.sub("", _BATCH.sub("", kind))


def divides_its_batch(kind: str) -> bool:
    """Return True if the jobs of the kind divide the same samples among however many workers they have."""
    return _BATCH.search(kind) is not None
