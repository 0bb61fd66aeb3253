"""What is to be done about the objects that are seen and the jobs that are known: a pure function, one act each.

What an act changes is seen at a later look, and leads to the next one. So it does not matter how often or in which
order changes are seen, at which act a service ends, or how old what it sees is.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from gavel.daemon.training_jobs.objects import TrainingObject
from gavel.types import JobId


class Deed(Enum):
    """What is done."""

    HOLD = auto()  # the object gets our finalizer, before anything is submitted for it
    SUBMIT = auto()
    EDIT = auto()  # `spec` is newer than what was taken
    CANCEL = auto()
    LET_GO = auto()  # the object loses our finalizer
    CLOSE = auto()  # its job is no longer stored, so nothing more will come


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """The job of an object, as it is stored."""

    id: JobId
    has_ended: bool = False
    is_cancelled: bool = False  # the request is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What to do for one object. `seen` None: a job whose object is not seen, to be checked before it is cancelled."""

    deed: Deed
    uid: str
    seen: TrainingObject | None = None
    job: KnownJob | None = None


def acts(
    objects: Sequence[TrainingObject], jobs: Mapping[str, KnownJob], resting: Collection[tuple[str, int]]
) -> list[Act]:
    """Return what to do. `jobs`: by the uid of their object. `resting`: (uid, generation) refused a moment ago."""
    made = [
        Act(deed=deed, uid=seen.uid, seen=seen, job=jobs.get(seen.uid))
        for seen in objects
        if (deed := _deed(seen, jobs.get(seen.uid), (seen.uid, seen.generation) in resting)) is not None
    ]
    return [*made, *_without_object({seen.uid for seen in objects}, jobs)]


def _deed(seen: TrainingObject, job: KnownJob | None, is_resting: bool) -> Deed | None:
    if seen.is_deleting:
        return _of_deleted(seen, job)
    if seen.is_over:
        # A finalizer more would make its deletion wait for a service that has nothing left to do.
        return Deed.LET_GO if seen.is_held else _edit(seen)
    if not seen.is_held:
        return Deed.HOLD
    if job is not None:
        return _edit(seen)
    if seen.job_id:
        return Deed.CLOSE
    return None if is_resting else Deed.SUBMIT


def _of_deleted(seen: TrainingObject, job: KnownJob | None) -> Deed | None:
    if not seen.is_held:
        return None
    return Deed.CANCEL if job is not None and _runs(job) else Deed.LET_GO


def _edit(seen: TrainingObject) -> Deed | None:
    return Deed.EDIT if seen.observed_generation != seen.generation else None


def _without_object(seen: Collection[str], jobs: Mapping[str, KnownJob]) -> Iterator[Act]:
    """Yield the cancellation of each job whose object is gone, such as one whose finalizer somebody took away."""
    for uid, job in jobs.items():
        if uid not in seen and _runs(job):
            yield Act(deed=Deed.CANCEL, uid=uid, job=job)


def _runs(job: KnownJob) -> bool:
    return not (job.has_ended or job.is_cancelled)
