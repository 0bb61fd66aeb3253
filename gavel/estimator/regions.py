"""Accelerator types of several regions: one rate for all of them, since the place makes no job faster."""

from collections.abc import Sequence

from gavel.types import AcceleratorType, plain_type


def without_regions(
    types: Sequence[AcceleratorType], memory_bytes: Sequence[int]
) -> tuple[list[AcceleratorType], list[int], list[int]]:
    """Return the different types without their regions, the least memory of each, and which of them each of `types` is.

    Memory that is not known (0) of a type in one region is not known of the type.
    """
    least: dict[AcceleratorType, int] = {}
    for name, memory in zip(map(plain_type, types), memory_bytes, strict=True):
        least[name] = min(memory, least.get(name, memory))
    place_of = {name: place for place, name in enumerate(least)}
    return list(least), list(least.values()), [place_of[plain_type(name)] for name in types]
