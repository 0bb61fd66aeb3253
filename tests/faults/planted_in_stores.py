"""Bugs to plant in the stores."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gavel.ports import AuditEntry, Changes, JobEvent
from gavel.store import memory, memory_jobs, queries
from gavel.store.memory import MemoryStore
from gavel.store.memory_leadership import LeadershipInMemory
from gavel.types import Job
from tests.faults.planting import instead, planted


@planted
def a_commit_checks_no_version() -> Any:
    original = MemoryStore.commit

    def commit(self: MemoryStore, expected_version: int, changes: Changes) -> int:
        return original(self, self._version, changes)

    return instead(MemoryStore, "commit", commit)


@planted
@contextmanager
def no_leader_is_refused() -> Iterator[None]:
    """The generation of the leader, and the version that every commit expects, go together."""
    with instead(LeadershipInMemory, "check", lambda self: None), a_commit_checks_no_version():
        yield


@planted
def a_key_is_forgotten() -> Any:
    original = MemoryStore.submit

    def submit(self: MemoryStore, spec: Any, *, key: str | None, body_hash: str, now_s: float) -> Any:
        return original(self, spec, key=None, body_hash=body_hash, now_s=now_s)

    return instead(MemoryStore, "submit", submit)


@planted
def an_audit_entry_is_forgotten() -> Any:
    def request_records(job: Job, kind: str, now_s: float, by: str, *_: object) -> tuple[JobEvent, AuditEntry]:
        entry = AuditEntry(at_s=now_s, by=by, subject="nobody", before=None, after={}, action=kind)
        return JobEvent(job_id=job.id, at_s=now_s, kind=kind), entry

    return instead(memory_jobs, "request_records", request_records)


@planted
def a_cancellation_is_overwritten() -> Any:
    """The scheduler writes the job as it read it."""
    original = memory.changed

    def changed(job: Job, **values: Any) -> Job:
        values.pop("cancel_requested", None)
        return original(job, **values)

    return instead(memory, "changed", changed)


@planted
def a_request_that_another_part_of_the_process_has_read_is_overlooked() -> Any:
    """A job that was just committed is taken into the next look as the scheduler decided it."""
    original = queries.changed

    def changed(job: Job, *, version: int, **_: object) -> Job:
        return original(job, version=version)

    return instead(queries, "changed", changed)
