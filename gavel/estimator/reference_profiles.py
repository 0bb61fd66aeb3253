"""Reference kinds that ship with Gavel: the catalogue, measured elsewhere (scripts/measure_references.py).

They show how kinds differ between types before anything has been measured here. The rates of another machine are used
for nothing else: each type is still measured when a job of the kind runs on it first.
"""

import json
from collections.abc import Iterable
from importlib.resources import files

from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.ports import ThroughputEstimate, ThroughputSource

FOREIGN_ERROR = 0.25  # of log(steps/s): another CPU, another numpy


def estimator_of(table: Iterable[ThroughputEstimate], *, core_sharing: int = 1) -> ReconciledThroughputs:
    """Return the estimator made from a stored table and the reference kinds: the one that the scheduler uses.

    `core_sharing` is the number of workers on one core; it only counts for what is learned later.
    """
    return ReconciledThroughputs.from_table(table, core_sharing=core_sharing, reference_profiles=reference_table())


def reference_table() -> tuple[ThroughputEstimate, ...]:
    """Return the shipped rates, sorted by kind, scale factor and type."""
    content = json.loads(files("gavel.estimator").joinpath("references.json").read_text(encoding="utf-8"))
    return tuple(
        ThroughputEstimate(
            kind=row["kind"],
            scale_factor=row["scale_factor"],
            accelerator_type=row["accelerator_type"],
            steps_per_s=row["steps_per_s"],
            relative_error=FOREIGN_ERROR,
            source=ThroughputSource.MEASURED,
            measurements=row["measurements"],
        )
        for row in content["rates"]
    )
