"""Explains from tick to tick why jobs wait: a tick looks at the jobs whose explanation may be another than before."""

from collections.abc import Collection, Iterator
from itertools import chain

from gavel.mechanism.explaining.waiting import MESSAGES_PER_TIER, Line, explain_waiting
from gavel.mechanism.jobs.index import JobIndex
from gavel.types import JobId, Reason, RoundRecord


class Explanations:
    """What ticks have explained. Nothing here is more than what `explain_waiting` finds for all jobs."""

    def __init__(self) -> None:
        self._decision: tuple[object, ...] = ()  # of the round that was explained last: what its order follows from
        self._by_tier: dict[str, list[JobId]] = {}  # the jobs of that round in their order
        self._leased: set[JobId] = set()
        self._apart: set[JobId] = set()  # the jobs of the last tick that had more to say than that they wait behind

    def explain(
        self, index: JobIndex, record: RoundRecord, others: Collection[JobId]
    ) -> Iterator[tuple[JobId, Reason, str]]:
        """Yield what `explain_waiting` yields of the jobs of `index`, but for jobs that have it already.

        `others` have another reason instead. A job that waits behind the first of its tier has the same reason
        without a message until the next round, unless it has changed, or was one of the first or of `others`.
        """
        line, jobs = Line(record), index.jobs
        touched, index.touched = index.touched, set()
        decision = record.problem, record.allocation, record.lag_rounds
        behind: set[JobId] = touched | self._apart | (self._leased ^ line.lease_of.keys())
        if len(self._decision) != len(decision) or any(
            a is not b for a, b in zip(self._decision, decision, strict=True)
        ):
            self._decision, self._by_tier, behind = decision, line.by_tier(jobs), set(jobs)
        first = list(line.first_of(self._by_tier, jobs))
        self._leased = set(line.lease_of)
        self._apart = {job.id for _, job in first}
        behind -= self._apart
        self._apart.update(others)
        rest = (jobs[job_id] for job_id in behind if job_id in jobs)
        waiting = ((MESSAGES_PER_TIER + 1, job) for job in rest if line.waits(job))
        yield from explain_waiting(jobs, record, chain(first, waiting))
