"""What clients were told, kept outside of the simulated world: it outlives every crash there."""

from dataclasses import dataclass, field

from gavel.types import JobId, OperationId


@dataclass(slots=True)
class Ledger:
    """Acknowledgements by submit key, of requests by job, and of operations."""

    submitted: dict[str, JobId] = field(default_factory=dict)
    attempted: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)  # (subject, action of the audit log)
    cancelled: set[JobId] = field(default_factory=set)
    cancellable: set[JobId] = field(default_factory=set)  # somebody asked to cancel them, acknowledged or not
    operations: list[OperationId] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)  # keys that were answered with two different jobs

    def acknowledge_submit(self, key: str, job_id: JobId) -> None:
        """Note that a client was told that its key made this job."""
        if self.submitted.setdefault(key, job_id) != job_id:
            self.doubled.append(key)
