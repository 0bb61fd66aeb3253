"""Checks what a submission says of the sizes of an elastic job."""

import math
from collections.abc import Mapping, Sequence

from api.http.errors import invalid
from api.schemas import JobSubmit
from api.submission.changing_gangs import check_may_change


def sizes_of(body: JobSubmit) -> tuple[int, ...]:
    """Return the sizes that the gang may have, ascending and each once; () for a rigid job."""
    return tuple(sorted(set(body.sizes)))


def smallest_of(body: JobSubmit) -> int:
    """Return the workers of the smallest gang that the job may have."""
    return min(body.sizes, default=body.scale_factor)


def check_sizes(body: JobSubmit, capacity: Mapping[str, int]) -> None:
    """Raise a 422 problem for sizes that do not go with the rest, do not divide the batch, or are nowhere free.

    `capacity`: the workers of each accelerator type.
    """
    _check_growth(body)
    if not body.sizes:
        if body.global_batch is not None:
            raise invalid("sizes", "say which sizes the gang may have, such as 1, 2 and 4, or leave global_batch out")
        return
    if body.global_batch is None:
        raise invalid("global_batch", "an elastic job needs it: how many samples a step is at every size")
    _check_rest(body)
    _check_divided(sizes_of(body), body.global_batch)
    _check_places(sizes_of(body), capacity)


def _check_growth(body: JobSubmit) -> None:
    """Raise a 422 problem for a largest update without a step to compare with, or one that leaves no room to grow."""
    if body.max_global_batch is None:
        return
    if body.global_batch is None:
        raise invalid("max_global_batch", "say with global_batch how many samples a step is, and state sizes")
    if body.max_global_batch < 2 * body.global_batch:
        twice = 2 * body.global_batch
        raise invalid("max_global_batch", f"state at least {twice}, twice the global batch, or leave it out")


def _check_rest(body: JobSubmit) -> None:
    """Raise a 422 problem for what an elastic job cannot have."""
    if body.scale_factor != 1:
        raise invalid("scale_factor", "leave it out with sizes: the rounds choose one of these")
    check_may_change(body, "sizes", what="size", each="at each size")


def _check_divided(sizes: Sequence[int], batch: int) -> None:
    """Raise a 422 problem that names the sizes that do not divide the global batch, and the nearest one that all do."""
    wrong = [str(size) for size in sizes if batch % size]
    if not wrong:
        return
    every = math.lcm(*sizes)
    nearest = max(every, batch // every * every)
    others = {nearest, nearest + every} if nearest < batch else {nearest}
    named = " and ".join(map(str, sorted(others)))
    which = f"size {wrong[0]}" if len(wrong) == 1 else f"sizes {', '.join(wrong)}"
    message = f"{batch} samples cannot be divided among {which}; the nearest that every size divides: {named}"
    raise invalid("global_batch", message)


def _check_places(sizes: Sequence[int], capacity: Mapping[str, int]) -> None:
    largest = max(capacity.values(), default=0)
    nowhere = [str(size) for size in sizes if size > largest]
    if capacity and nowhere:
        counts = ", ".join(f"{name} ({count})" for name, count in capacity.items())
        raise invalid("sizes", f"no type has {' or '.join(nowhere)} workers; at most {largest} fit: {counts}")
