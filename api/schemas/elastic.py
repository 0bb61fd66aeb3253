"""Elastic jobs: what a submission says of their sizes, and what a job shows of them."""

from typing import Annotated

from pydantic import Field

from api.schemas.fields import Request, View

GangSize = Annotated[int, Field(ge=1, le=1024)]


class ElasticSubmit(Request):
    """The part of a submission that makes the job elastic."""

    sizes: list[GangSize] = Field(
        default_factory=list,
        max_length=32,
        description="Of an elastic job: the numbers of accelerators that its gang may have. The rounds choose one, and"
        " another later. In place of `scale_factor`, with `global_batch`.",
    )
    global_batch: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Samples of one step of an elastic job, the same at every size; each of `sizes` divides it.",
    )


class ElasticView(View):
    """What a job shows of its sizes."""

    scale_factor: int = Field(description="Accelerators of its gang; of an elastic job the size in force.")
    sizes: list[int] = Field(description="Sizes that the gang of an elastic job may have; empty: a rigid job.")
    global_batch: int | None = Field(description="Samples of one step of an elastic job; null: a rigid job.")
