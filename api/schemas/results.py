"""What jobs leave: the curves of their metrics."""

from pydantic import Field

from api.schemas.fields import View


class JobMetricsView(View):
    """The metrics that a job has reported, in columns of equal length, by step; `values` has a column for each name."""

    names: list[str]
    steps: list[int]
    at_s: list[float]
    generations: list[int] = Field(description="Of the gang that reported it: it grows with each launch.")
    accelerator_types: list[str] = Field(description="The type that the gang ran on.")
    values: dict[str, list[float | None]] = Field(description="Null: this report had no value of that name.")
