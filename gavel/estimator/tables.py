"""Conversion between evidence and the rows of the stored table, which survives a restart."""

import math
from collections.abc import Iterable
from dataclasses import replace

from gavel.estimator.evidence import MEMORY_REPORTS, REPORT_ERROR, Evidence
from gavel.estimator.kinds import OWN_KIND
from gavel.ports import ThroughputEstimate, ThroughputSource
from gavel.types import AcceleratorType

Key = tuple[str, int, AcceleratorType]
CONSOLIDATED = "consolidated"  # the placement of a gang on as few nodes as it can be
InterferenceKey = tuple[str, int, AcceleratorType, str, str]  # with partner ("": none) and placement


def is_interference(row: ThroughputEstimate) -> bool:
    """Return whether the row is of a gang beside a partner, or spread over nodes."""
    return row.partner is not None or row.placement != CONSOLIDATED


def own_rows(table: Iterable[ThroughputEstimate]) -> list[ThroughputEstimate]:
    """Return the rows of gangs alone on their workers and on as few nodes as can be: a kind's own speed."""
    return [row for row in table if not is_interference(row)]


def key_of(row: ThroughputEstimate) -> Key:
    """Return the key of evidence on gangs alone and consolidated."""
    return row.kind, row.scale_factor, row.accelerator_type


def interference_key_of(row: ThroughputEstimate) -> InterferenceKey:
    """Return the key of evidence on the other gangs; also the sort key of a table."""
    return row.kind, row.scale_factor, row.accelerator_type, row.partner or "", row.placement


def evidence_of(row: ThroughputEstimate) -> Evidence:
    """Return the evidence of a row. The jobs behind it are not stored, but for a job's own kind."""
    return Evidence(
        log_rate=math.log(row.steps_per_s),
        weight=min(float(row.measurements), MEMORY_REPORTS / 2),
        variance=REPORT_ERROR**2,
        count=row.measurements,
        published=row.steps_per_s,
        is_representative=row.is_measured,
        stated_by=row.stated_by,
        refused=row.refused,
        held_bytes=row.held_bytes,
        sources=(row.kind.partition(OWN_KIND)[2],),
    )


def foreign(row: ThroughputEstimate) -> Evidence:
    """Return the evidence of a row measured on another machine: one report with the row's error."""
    return replace(evidence_of(row), weight=1.0, variance=row.relative_error**2)


def row_of(key: Key, rate: Evidence) -> ThroughputEstimate:
    """Return the row of the table for evidence."""
    return ThroughputEstimate(
        kind=key[0],
        scale_factor=key[1],
        accelerator_type=key[2],
        steps_per_s=rate.published,
        relative_error=rate.error,
        source=ThroughputSource.MEASURED if rate.is_representative else ThroughputSource.INFERRED,
        measurements=rate.count,
        stated_by=rate.stated_by,
        refused=rate.refused,
        held_bytes=rate.held_bytes,
    )
