"""The unfinished jobs as a tick sees them, sorted out from tick to tick: a tick works on what has changed."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping

from gavel.types import Job, JobId, JobState

Key = tuple[int, float, JobId]

SORTED_ANEW = 2000  # with more changed keys than this, the order is sorted anew
NEVER_S = float("-inf")


class JobIndex:
    """`jobs` by ID; of these `leased` have a gang, and a round may not serve some of `conditional`.

    Nothing here is more than what a loop over all jobs would find: a restart makes it anew.
    """

    def __init__(self, jobs: Mapping[JobId, Job] | None = None) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.leased: dict[JobId, Job] = {}
        self.conditional: dict[JobId, Job] = {}  # services; paused, cancelled, over, waiting, lost, moved, reserved
        self.non_preemptible: dict[JobId, Job] = {}
        self.services: dict[JobId, Job] = {}
        self.replicas: dict[JobId, Job] = {}
        self.configurable: dict[JobId, Job] = {}  # whose size or plan the rounds choose
        self.sizes: Counter[int] = Counter()  # how many jobs have gangs of so many workers
        self.newest_at_s = NEVER_S  # no job was submitted after this
        self.touched: set[JobId] = set()  # that were put since somebody has emptied this
        self._keys: dict[JobId, Key] = {}
        self._order: list[Key] = []
        self._is_sorted = True
        self._ordered: list[Job] | None = None  # as of the last change
        self._taken: Mapping[JobId, Job] | None = None  # `jobs` has been these since they were taken
        self.take(jobs or {})

    def take(self, jobs: Mapping[JobId, Job]) -> None:
        """Become the index of these jobs; only those that are other objects than before are looked at."""
        if jobs is self._taken:
            return
        own = self.jobs
        new = [job for job_id, job in jobs.items() if own.get(job_id) is not job]
        self._is_sorted = self._is_sorted and sum(job.id not in own for job in new) < SORTED_ANEW
        for job in new:
            self.put(job)
        if len(own) > len(jobs):
            for job_id in own.keys() - jobs.keys():
                self.remove(job_id)
        self._taken = jobs

    def put(self, job: Job) -> None:
        """Add a job, or replace that of the same ID."""
        before = self.jobs.get(job.id)
        self._ordered = self._taken = None
        self.jobs[job.id] = job
        self.touched.add(job.id)
        _keep(self.leased, job, job.state is JobState.LEASED)
        _keep(self.conditional, job, is_conditional(job))
        _keep(self.non_preemptible, job, not job.spec.preemptible and job.spec.service is None)
        _keep(self.services, job, job.spec.service is not None)
        _keep(self.replicas, job, job.spec.replica is not None)
        _keep(self.configurable, job, job.spec.has_choice)
        if before is None or before.spec is not job.spec:
            self._place(job, before)

    def remove(self, job_id: JobId) -> None:
        """Remove a job; nothing happens if it is not there."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self._ordered = self._taken = None
            self.touched.discard(job_id)
            self.leased.pop(job_id, None)
            self.conditional.pop(job_id, None)
            for subset in (self.non_preemptible, self.services, self.replicas):
                subset.pop(job_id, None)
            self.configurable.pop(job_id, None)
            self.sizes[job.spec.scale_factor] -= 1
            self._unplace(self._keys.pop(job_id))

    def in_order(self) -> list[Job]:
        """Return all jobs, the highest priority first, then the earliest submission; nobody may change the list."""
        if not self._is_sorted:
            self._order, self._is_sorted = sorted(self._keys.values()), True
        if self._ordered is None:
            jobs = self.jobs
            self._ordered = [jobs[job_id] for _, _, job_id in self._order]
        return self._ordered

    def serving(self, held: Mapping[JobId, object], now_s: float) -> list[Job]:
        """Return the jobs that a round may serve at this instant, in order; never those that are `held`."""
        left_out = {job.id for job in self.conditional.values() if not is_schedulable(job, now_s)} | held.keys()
        jobs = self.in_order()
        return [job for job in jobs if job.id not in left_out] if left_out else jobs

    def _place(self, job: Job, before: Job | None) -> None:
        if before is not None:
            self.sizes[before.spec.scale_factor] -= 1
        self.sizes[job.spec.scale_factor] += 1
        self.newest_at_s = max(self.newest_at_s, job.submitted_at_s)
        key, old = order_key(job), self._keys.get(job.id)
        if key == old:
            return
        if old is not None:
            self._unplace(old)
        self._keys[job.id] = key
        if self._is_sorted:
            insort(self._order, key)

    def _unplace(self, key: Key) -> None:
        if self._is_sorted:
            del self._order[bisect_left(self._order, key)]


def order_key(job: Job) -> Key:
    """Return the place of a job in the order of service: the highest priority first, then the earliest submission."""
    return -job.spec.priority, job.submitted_at_s, job.id


def is_schedulable(job: Job, now_s: float) -> bool:
    """Return True if a round may serve the job; one that lost its gangs repeatedly waits until `retry_at_s`."""
    return job.is_wanted and job.retry_at_s <= now_s


def is_conditional(job: Job) -> bool:
    """Return True for a job that has more to say than that it waits or runs: a hold, a request, an unlucky past."""
    has_request = job.cancel_requested or job.pause_requested or job.over
    return bool(
        job.spec.service
        or has_request
        or job.waits_for
        or job.retry_at_s > 0
        or job.no_progress
        or job.residence.arrives_at_s > 0
        or job.spec.reserved_at_s is not None
    )


def _keep(subset: dict[JobId, Job], job: Job, belongs: bool) -> None:
    if belongs:
        subset[job.id] = job
    else:
        subset.pop(job.id, None)
