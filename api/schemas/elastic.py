"""Elastic jobs: what a submission says of their sizes, and what a job shows of them."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, ValidationInfo

from api.schemas.fields import Request, View

LARGEST = 1024
NAMED = 8  # sizes of a range that are written one by one
RANGE_PATTERN = r"^[1-9][0-9]{0,3}-[1-9][0-9]{0,3}$"

GangSize = Annotated[int, Field(ge=1, le=LARGEST)]

SizeList = Annotated[list[GangSize], Field(max_length=32)]

SizeRange = Annotated[str, StringConstraints(pattern=RANGE_PATTERN)]
"""From the first number to the second one, such as 1-8."""


def sizes_in_range(stated: Any, info: ValidationInfo) -> Any:
    """Return the sizes of a range that divide the global batch; everything else as it was stated.

    Without a valid global batch, which is refused by itself, the ends of the range. Raises ValueError.
    """
    if not isinstance(stated, str):
        return stated
    if not re.fullmatch(RANGE_PATTERN, stated):
        raise ValueError(f"{stated!r} is no range of sizes; write it as 1-8, or list the sizes")
    first, last = map(int, stated.split("-"))
    if not first <= last <= LARGEST:
        raise ValueError(f"{stated}: the first size comes first, and none is above {LARGEST}")
    batch = info.data.get("global_batch")
    if batch is None:
        return sorted({first, last})
    return _dividing(first, last, batch)


def _dividing(first: int, last: int, batch: int) -> list[int]:
    """Return the sizes from `first` to `last` that divide the batch. Raises ValueError, with the nearest that do."""
    sizes = [size for size in range(first, last + 1) if batch % size == 0]
    if sizes:
        return sizes
    below = next(size for size in range(first, 0, -1) if batch % size == 0)
    above = next((size for size in range(last, LARGEST + 1) if batch % size == 0), below)
    nearest = " and ".join(map(str, sorted({below, above})))
    which = ", ".join(map(str, range(first, last + 1))) if last - first < NAMED else f"the sizes {first} to {last}"
    raise ValueError(f"none of {which} divides a global batch of {batch}; the nearest sizes that do: {nearest}")


class ElasticSubmit(Request):
    """The part of a submission that makes the job elastic."""

    global_batch: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Samples of one step of an elastic job, the same at every size; each of `sizes` divides it.",
    )
    max_global_batch: int | None = Field(
        None,
        ge=2,
        le=2**31 - 1,
        description="Samples that one update of an elastic job may grow to, where the noise of its gradients makes that"
        " pay, for a program that calls `job.gain`; null: each update is one step.",
    )
    sizes: Annotated[SizeList, BeforeValidator(sizes_in_range, json_schema_input_type=SizeList | SizeRange)] = Field(
        default_factory=list,
        description="Of an elastic job: the numbers of accelerators that its gang may have, or a range such as 1-8, of"
        " which those that divide `global_batch` count. The rounds choose one. In place of `scale_factor`.",
    )


class ElasticView(View):
    """What a job shows of its sizes."""

    scale_factor: int = Field(description="Accelerators of its gang; of an elastic job the size in force.")
    sizes: list[int] = Field(description="Sizes that the gang of an elastic job may have; empty: a rigid job.")
    global_batch: int | None = Field(description="Samples of one step of an elastic job; null: a rigid job.")
    max_global_batch: int | None = Field(description="Samples that an update may grow to; null: each is one step.")
