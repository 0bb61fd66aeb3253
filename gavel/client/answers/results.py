"""What the API answers about results.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import TypedDict


class JobMetrics(TypedDict):
    """The metrics that a job has reported, in columns of equal length, by step; `values` has a column for each name."""

    names: list[str]
    steps: list[int]
    at_s: list[float]
    generations: list[int]  # Of the gang that reported it: it grows with each launch.
    accelerator_types: list[str]  # The type that the gang ran on.
    values: dict[str, list[float | None]]  # Null: this report had no value of that name.
