"""Reference kinds that ship with Gavel: the catalogue, measured elsewhere (scripts/measure_references.py).

They say how kinds differ between types before anything has been measured here. Another machine's rates are worth that
much and no more: a type is still measured where a job of the kind runs first.
"""

import json
from importlib.resources import files

from gavel.ports import ThroughputEstimate

FOREIGN_ERROR = 0.25  # of log(steps/s): another CPU, another numpy


def reference_table() -> tuple[ThroughputEstimate, ...]:
    """The shipped rates, sorted by kind, scale factor and type."""
    content = json.loads(files("gavel.estimator").joinpath("references.json").read_text(encoding="utf-8"))
    return tuple(
        ThroughputEstimate(
            kind=row["kind"],
            scale_factor=row["scale_factor"],
            accelerator_type=row["accelerator_type"],
            steps_per_s=row["steps_per_s"],
            relative_error=FOREIGN_ERROR,
            source="measured",
            measurements=row["measurements"],
        )
        for row in content["rates"]
    )
