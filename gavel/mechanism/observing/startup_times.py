"""Keeps how long gangs take before they train, by job kind and accelerator type.

Not by node: nodes of one accelerator type differ little, and a kind would have to start on each of them first.
"""

from collections.abc import Iterable
from dataclasses import replace

from gavel.types import AcceleratorType, GangSeen, Job, Report, ReportKind, StartupTimes

KEPT = 5  # measurements of each time: so few that a change shows soon
KINDS_MAX = 1000  # pairs of a kind and a type; the one that reported nothing for longest goes first


def checked_reports(gang: GangSeen, now_s: float) -> tuple[Report, ...]:
    """Return the gang's reports, their durations limited to the time since its start, as a program may report any.

    A first report without durations, from a runtime that does not measure them, gets the time until it was seen.
    """
    if gang.started_at_s is None:
        return gang.reports
    most_s = max(0.0, now_s - gang.started_at_s)
    return tuple(_checked(report, most_s) for report in gang.reports)


def _checked(report: Report, most_s: float) -> Report:
    is_first = report.sequence == 1 and report.kind is ReportKind.PROGRESS and report.steps == 0
    if not is_first and report.startup_s is None and report.checkpoint_s is None:
        return report
    startup_s = most_s if is_first and report.startup_s is None else report.startup_s
    startup_s = None if startup_s is None else min(startup_s, most_s)
    left_s = most_s - (startup_s or 0.0)
    return replace(
        report,
        startup_s=startup_s,
        restore_s=None if report.restore_s is None else min(report.restore_s, left_s),
        checkpoint_s=None if report.checkpoint_s is None else min(report.checkpoint_s, most_s),
    )


class LearnedTimes:
    """The times of a table, and those that reports add to it; a report costs the same however many kinds there are."""

    def __init__(self, table: tuple[StartupTimes, ...]) -> None:
        self._table: tuple[StartupTimes, ...] | None = table
        self._times = {(each.kind, each.accelerator_type): each for each in table}  # who reported last is last

    @property
    def table(self) -> tuple[StartupTimes, ...]:
        """Return the table with what was added; the same object without any."""
        if self._table is None:
            self._table = tuple(self._times.values())
        return self._table

    def add(self, job: Job, gang: GangSeen, reports: Iterable[Report]) -> None:
        """Add the durations in the new ones of these checked reports.

        `job` is as before the reports. A restore that loaded nothing, at the job's first start, is not counted.
        """
        for report in reports:
            if report.sequence > job.report_sequence:
                restore_s = report.restore_s if job.checkpoint or job.spec.from_checkpoint else None
                if (report.startup_s, restore_s, report.checkpoint_s) != (None, None, None):
                    self._put(job.spec.kind, gang.accelerator_type, replace(report, restore_s=restore_s))

    def _put(self, kind: str, name: AcceleratorType, report: Report) -> None:
        before = self._times.pop((kind, name), None) or StartupTimes(kind=kind, accelerator_type=name)
        self._times[kind, name] = replace(
            before,
            startup_s=_newest(before.startup_s, report.startup_s),
            restore_s=_newest(before.restore_s, report.restore_s),
            checkpoint_s=_newest(before.checkpoint_s, report.checkpoint_s),
        )
        if len(self._times) > KINDS_MAX:
            del self._times[next(iter(self._times))]
        self._table = None


def _newest(kept_s: tuple[float, ...], measured_s: float | None) -> tuple[float, ...]:
    return kept_s if measured_s is None else (*kept_s, measured_s)[-KEPT:]
