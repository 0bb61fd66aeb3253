"""What the backends with a state folder share: how they carry out instructions, and what they return."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import structlog

from gavel.backends import machine
from gavel.backends.folder import StateFolder
from gavel.backends.gang import GangKey
from gavel.backends.held_memory import HeldMemory
from gavel.backends.logs import read_log
from gavel.backends.sharing import CoreSharing
from gavel.errors import BackendUnavailable, InvalidRequest
from gavel.ports import (
    Clock,
    CordonNode,
    ExtendLease,
    ForgetGang,
    Instruction,
    KeepCheckpoint,
    LaunchGang,
    PrepareGang,
    SaveCheckpoint,
    SetResources,
    StopGang,
)
from gavel.types import EphemeralResource, JobId, Report

log = structlog.get_logger("gavel.backend")

REPORTS_KEPT = 64  # newest reports of each gang, returned again once it has ended


@contextmanager
def answering(doing: str) -> Iterator[None]:
    """Turn OSError into BackendUnavailable: a disk that is full or gone must not crash the service."""
    try:
        yield
    except OSError as problem:
        raise BackendUnavailable(f"cannot {doing}: {problem}") from problem


def logged(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, int]:
    """Return output from `offset` (bytes since the log's first line), and the offset to ask for next.

    The output begins later where the bound of the log has removed older output. Raises InvalidRequest or
    BackendUnavailable.
    """
    if offset < 0:
        raise InvalidRequest("offset", f"{offset} is below 0; ask for 0 or an offset from an earlier answer")
    with answering("read the log"):
        return read_log(path, offset, limit_bytes)


class FolderBackend(ABC):
    """Calls the method for each instruction; reads logs from the folder; measures instants by boottime."""

    _clock: Clock
    _folder: StateFolder
    _sharing: CoreSharing

    @cached_property
    def _held_memory(self) -> HeldMemory:
        return HeldMemory()

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Return output of all the job's ranks, see `logged`. Safe from any thread."""
        return logged(self._folder.places(job_id, 0).log, offset, limit_bytes)

    def forget_job(self, job_id: JobId) -> None:
        """Drop what is kept of a job that has ended and has no gang any more. Safe from any thread."""
        self._folder.forget_job(job_id)

    def _obey_alone(self, instruction: Instruction) -> None:
        """Carry out one instruction; what only its own job's files prevent is logged and left. Raises OSError."""
        try:
            self._obey(instruction)
        except OSError as problem:
            self._folder.check_usable()
            log.warning("instruction.left", instruction=type(instruction).__name__, error=str(problem))

    def _raise_fence(self, job_id: JobId, fence: int) -> None:
        """Refuse lower generations, for as long as this service runs even if the job has spoilt the file."""
        self._folder.assume_fence(job_id, fence)
        try:
            self._folder.raise_fence(job_id, fence)
        except OSError as problem:
            self._folder.check_usable()
            log.warning("fence.not_written", job=job_id, error=str(problem))

    def _obey(self, instruction: Instruction) -> None:
        match instruction:
            case SetResources():
                self._set_resources(instruction.resources)
            case LaunchGang():
                self._launch(instruction)
            case ExtendLease():
                self._extend(instruction)
            case StopGang():
                self._stop(instruction)
            case SaveCheckpoint():
                self._save((instruction.job_id, instruction.generation), instruction.asked_at_s)
            case ForgetGang():
                self._forget((instruction.job_id, instruction.generation))
            case KeepCheckpoint():
                self._keep_checkpoint(instruction)
            case PrepareGang():
                self._prepare(instruction)
            case CordonNode():
                self._cordon(instruction)

    def _prepare(self, instruction: PrepareGang) -> None:  # noqa: B027  a hint, which a backend may ignore
        """Start the programs of a gang before its lease."""

    def _cordon(self, instruction: CordonNode) -> None:  # noqa: B027  for clusters that have cordons
        """Have the cluster keep new work from a node, or let it come again."""

    @abstractmethod
    def _set_resources(self, resources: tuple[EphemeralResource, ...]) -> None: ...

    @abstractmethod
    def _launch(self, instruction: LaunchGang) -> None: ...

    @abstractmethod
    def _extend(self, instruction: ExtendLease) -> None: ...

    @abstractmethod
    def _stop(self, instruction: StopGang) -> None: ...

    @abstractmethod
    def _save(self, key: GangKey, asked_at_s: float) -> None: ...

    @abstractmethod
    def _forget(self, key: GangKey) -> None: ...

    @abstractmethod
    def _keep_checkpoint(self, instruction: KeepCheckpoint) -> None: ...

    def _handed(
        self, key: GangKey, kept: deque[Report], fresh: Sequence[Report], *, has_ended: bool
    ) -> tuple[Report, ...]:
        """Return new reports; for an ended gang also the kept ones, so that a failed commit loses none."""
        if fresh and not self._sharing.take(key):
            fresh = [replace(report, is_representative=False) for report in fresh]
        if fresh:
            held_bytes = self._held_memory.newest_bytes(key, self._folder.places(*key).log)
            fresh = [replace(fresh[0], accelerator_memory_bytes=held_bytes), *fresh[1:]]
        if has_ended:
            self._held_memory.forget(key)
        handed = (*kept, *fresh) if has_ended else tuple(fresh)
        kept.extend(fresh)
        return handed

    def _boottime_s(self, at_s: float) -> float:
        return machine.boottime_s() + at_s - self._clock.now_s()

    def _instant_s(self, boottime_s: float | None) -> float | None:
        return None if boottime_s is None else self._clock.now_s() - machine.boottime_s() + boottime_s
