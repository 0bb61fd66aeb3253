"""Which fields of a problem an answer depends on: it is used again while none of them changes."""

from collections.abc import Callable, Collection
from dataclasses import fields

from gavel.errors import InvalidRequest
from gavel.types import AllocationProblem

Reads = Collection[str] | Callable[[AllocationProblem], Collection[str]]
"""Names of fields, or what tells them for a problem."""

ALWAYS = frozenset(
    {
        "job_ids",
        "combinations",
        "accelerator_types",
        "throughput_steps_per_s",
        "capacity_workers",
        "scale_factor",
        "pair_rates",
        "configurations",
        "combination_workers",
    }
)
"""Fields that say who there is, where each can run and how fast: every answer depends on them."""

_KNOWN = frozenset(each.name for each in fields(AllocationProblem))


def fields_read(policy: object, problem: AllocationProblem) -> tuple[str, ...] | None:
    """Return the fields that `policy`'s answer to `problem` depends on, sorted; None for all of them.

    A policy states the fields beyond `ALWAYS` as its attribute `reads`: a set, or a method that returns one for a
    problem. Without it the answer may depend on everything. Raises InvalidRequest for a name that is no field.
    """
    stated: Reads | None = getattr(policy, "reads", None)
    if stated is None:
        return None
    names = ALWAYS.union(stated(problem) if callable(stated) else stated)
    for name in sorted(names - _KNOWN):
        raise InvalidRequest("policy", f"reads {name!r}, which is no field of a problem; name fields only")
    return tuple(sorted(names))
