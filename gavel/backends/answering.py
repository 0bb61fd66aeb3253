"""What the backends that keep their gangs in a state folder have in common: how they obey, and what they answer."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gavel.backends import machine
from gavel.backends.folder import StateFolder
from gavel.backends.gang import GangKey
from gavel.backends.logs import read_log
from gavel.backends.sharing import CoreSharing
from gavel.errors import BackendUnavailable, InvalidRequest
from gavel.ports import Clock, ExtendLease, ForgetGang, Instruction, KeepCheckpoint, LaunchGang, SetResources, StopGang
from gavel.types import EphemeralResource, JobId, Report

REPORTS_KEPT = 64  # of each gang, to be handed over again when it has ended


@contextmanager
def answering(doing: str) -> Iterator[None]:
    """A disk that is full or gone is an answer, not a crash: OSError becomes BackendUnavailable."""
    try:
        yield
    except OSError as problem:
        raise BackendUnavailable(f"cannot {doing}: {problem}") from problem


def logged(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, int]:
    """Output from `offset` (bytes since the log's first line), and the offset to ask for next.

    Begins later where the bound of the log has removed older output. Raises InvalidRequest or BackendUnavailable.
    """
    if offset < 0:
        raise InvalidRequest("offset", f"{offset} is below 0; ask for 0 or an offset from an earlier answer")
    with answering("read the log"):
        return read_log(path, offset, limit_bytes)


class FolderBackend(ABC):
    """Each instruction to the method that obeys it; logs by the folder; instants by boottime, which no clock turns."""

    _clock: Clock
    _folder: StateFolder
    _sharing: CoreSharing

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        """Output of all the job's ranks, see `logged`. Safe from any thread."""
        return logged(self._folder.places(job_id, 0).log, offset, limit_bytes)

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
            case ForgetGang():
                self._forget((instruction.job_id, instruction.token))
            case KeepCheckpoint():
                self._keep_checkpoint(instruction)

    @abstractmethod
    def _set_resources(self, resources: tuple[EphemeralResource, ...]) -> None: ...

    @abstractmethod
    def _launch(self, instruction: LaunchGang) -> None: ...

    @abstractmethod
    def _extend(self, instruction: ExtendLease) -> None: ...

    @abstractmethod
    def _stop(self, instruction: StopGang) -> None: ...

    @abstractmethod
    def _forget(self, key: GangKey) -> None: ...

    @abstractmethod
    def _keep_checkpoint(self, instruction: KeepCheckpoint) -> None: ...

    def _handed(
        self, key: GangKey, kept: deque[Report], fresh: Sequence[Report], *, has_ended: bool
    ) -> tuple[Report, ...]:
        """New reports, and of a gang that ended those kept too: none is lost with a commit that failed."""
        if fresh and not self._sharing.take(key):
            fresh = [replace(report, is_representative=False) for report in fresh]
        handed = (*kept, *fresh) if has_ended else tuple(fresh)
        kept.extend(fresh)
        return handed

    def _boottime_s(self, at_s: float) -> float:
        return machine.boottime_s() + at_s - self._clock.now_s()

    def _instant_s(self, boottime_s: float | None) -> float | None:
        return None if boottime_s is None else self._clock.now_s() - machine.boottime_s() + boottime_s
