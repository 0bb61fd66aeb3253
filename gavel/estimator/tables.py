"""Between evidence and the rows of the table that outlives a restart."""

import math
from dataclasses import replace

from gavel.estimator.evidence import MEMORY_REPORTS, REPORT_ERROR, Evidence
from gavel.estimator.kinds import OWN_KIND
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType

Key = tuple[str, int, AcceleratorType]
CONSOLIDATED = "consolidated"  # the placement of a gang on as few nodes as it can be
SideKey = tuple[str, int, AcceleratorType, str, str]  # with partner ("": none) and placement


def is_aside(row: ThroughputEstimate) -> bool:
    """True for a gang beside a partner, or spread over nodes."""
    return row.partner is not None or row.placement != CONSOLIDATED


def key_of(row: ThroughputEstimate) -> Key:
    """What evidence on gangs alone and consolidated is kept by."""
    return row.kind, row.scale_factor, row.accelerator_type


def side_key_of(row: ThroughputEstimate) -> SideKey:
    """What evidence on the others is kept by; sorts a table."""
    return row.kind, row.scale_factor, row.accelerator_type, row.partner or "", row.placement


def evidence_of(row: ThroughputEstimate) -> Evidence:
    """What a row of the table says; which jobs are behind it is not known any more, but of a job's own kind."""
    return Evidence(
        log_rate=math.log(row.steps_per_s),
        weight=min(float(row.measurements), MEMORY_REPORTS / 2),
        variance=REPORT_ERROR**2,
        count=row.measurements,
        published=row.steps_per_s,
        is_representative=row.is_measured,
        stated_by=row.stated_by,
        refused=row.refused,
        witnesses=(row.kind.partition(OWN_KIND)[2],),
    )


def foreign(row: ThroughputEstimate) -> Evidence:
    """What another machine measured is one report with the error that it is given with."""
    return replace(evidence_of(row), weight=1.0, variance=row.relative_error**2)


def row_of(key: Key, rate: Evidence) -> ThroughputEstimate:
    """The row of the table."""
    return ThroughputEstimate(
        kind=key[0],
        scale_factor=key[1],
        accelerator_type=key[2],
        steps_per_s=rate.published,
        relative_error=rate.error,
        source="measured" if rate.is_representative else "inferred",
        measurements=rate.count,
        stated_by=rate.stated_by,
        refused=rate.refused,
    )
