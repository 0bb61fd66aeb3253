"""The allocation matrix with one row per job kind and tier: with ten thousand jobs, each single entry is close to 0."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from api.schemas import AllocationRow, AllocationView
from api.views.jobs_and_rounds import allocation_view, received_of_job
from gavel.types import Allocation, Job, JobId, RoundRecord

ROWS_MAX = 500  # with more rows than this they are grouped, unless the caller asks for all


def rows_of(record: RoundRecord, jobs: Mapping[JobId, Job]) -> int:
    """Return how many rows the allocation has for these jobs."""
    return len({job_id for combination in record.allocation.combinations for job_id in combination if job_id in jobs})


def grouped_view(record: RoundRecord, jobs: Mapping[JobId, Job], now_s: float) -> AllocationView:
    """Return one row for the jobs of each tier and kind: the means of their rows.

    Rows are in the order of the first job of each. Fractions are averaged before they are rounded: rounded first, small
    ones would become zero.
    """
    groups = _groups(record.allocation, jobs)
    rows = [_row(group, record.allocation, now_s) for group in groups]
    empty = allocation_view(record, {}, now_s)
    return empty.model_copy(update={"rows": rows, "is_grouped": True, "jobs": sum(row.jobs for row in rows)})


@dataclass(slots=True)
class _Group:
    jobs: dict[JobId, Job] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)  # of the allocation, one for each job that is in it


def _groups(allocation: Allocation, jobs: Mapping[JobId, Job]) -> Sequence[_Group]:
    groups: dict[tuple[str, str], _Group] = defaultdict(_Group)
    for line, job in _members(allocation, jobs):
        group = groups[job.spec.tier, job.spec.kind]
        group.jobs[job.id] = job
        group.lines.append(line)
    return list(groups.values())


def _members(allocation: Allocation, jobs: Mapping[JobId, Job]) -> Iterator[tuple[int, Job]]:
    for line, combination in enumerate(allocation.combinations):
        for job_id in combination:
            if job := jobs.get(job_id):
                yield line, job


def _row(group: _Group, allocation: Allocation, now_s: float) -> AllocationRow:
    jobs = list(group.jobs.values())
    target = allocation.time_fraction[group.lines].sum(axis=0) / len(jobs)
    is_one, users = len(jobs) == 1, {job.spec.user for job in jobs}
    return AllocationRow(
        job_id=jobs[0].id if is_one else "",
        name=jobs[0].spec.name if is_one else "",
        kind=jobs[0].spec.kind,
        user=users.pop() if len(users) == 1 else "",
        tier=jobs[0].spec.tier,
        target=target.tolist(),
        received=_mean_received(jobs, allocation.accelerator_types, now_s),
        note=dict(allocation.notes).get(jobs[0].id, "") if is_one else "",
        jobs=len(jobs),
    )


def _mean_received(jobs: Sequence[Job], types: Sequence[str], now_s: float) -> list[float]:
    """Return the mean of `received_of_job` over these jobs. Jobs that received nothing cost no time here."""
    total = dict.fromkeys(types, 0.0)
    for job in jobs:
        if job.received_s:
            for name, part in zip(types, received_of_job(job, types, now_s), strict=True):
                total[name] += part
    return [total[name] / len(jobs) for name in types]
