"""What one tick of the driver has decided so far."""

from dataclasses import dataclass, field

from gavel.ports import JobEvent, Snapshot
from gavel.types import Job, JobId, Observation, RoundPlan, RoundRecord


@dataclass(slots=True)
class Tick:
    """The projection that later steps of a tick see, and what its commit will write."""

    now_s: float
    seen: Observation
    snapshot: Snapshot
    jobs: dict[JobId, Job]
    changed: dict[JobId, Job] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    record: RoundRecord | None = None

    def put(self, job: Job, *events: JobEvent) -> None:
        """Replace a job; a terminal one leaves the projection."""
        self.changed[job.id] = job
        self.events.extend(events)
        if job.state.is_terminal:
            self.jobs.pop(job.id, None)
        else:
            self.jobs[job.id] = job

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """The newest rounds, oldest first, the one decided in this tick included."""
        return (*self.snapshot.rounds, self.record)[-2:] if self.record else self.snapshot.rounds

    @property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """The plans of `records`."""
        return tuple(record.plan for record in self.records)
