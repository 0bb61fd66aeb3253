"""The state directory of a local cluster: its paths, and the few files that outlive a service."""

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from gavel.backends.checkpoint_retention import keep_checkpoint
from gavel.backends.code_store import code_dir
from gavel.backends.gang_records import record_of
from gavel.backends.launch import Places
from gavel.backends.machine import read_object, write_json
from gavel.backends.runtime import runtime_dir
from gavel.backends.state_dir_lock import StateDirLock
from gavel.errors import InvalidRequest
from gavel.types import EphemeralResource, JobId, Term

GENERATION = re.compile(r"0|[1-9][0-9]{0,17}")
FENCE_MAX = 1 << 62
JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class StateFolder:
    """The state directory, held against every other service until `close`, or until a newer term of its database.

    What is written for gangs goes through `own` paths, which fail once another service has taken over. `kept`: the
    directory of what outlives gangs, where several such directories share it; `logs`: the same for logs of jobs.
    Raises BackendUnavailable if another service has the directory.
    """

    def __init__(
        self, path: Path, term: Term | None = None, kept: Path | None = None, logs: Path | None = None
    ) -> None:
        self._path = path.resolve()
        self._kept = None if kept is None else kept.resolve()
        self._logs = (logs or path).resolve()
        self._state_dir_lock = StateDirLock(self._path, term)
        self._runtime = runtime_dir(self._kept or self._path)
        self._fences = {path.parent.name: _fence_in(path) for path in (self._path / "gangs").glob("*/fence.json")}

    @classmethod
    @contextmanager
    def opened(cls, path: Path, term: Term | None, kept: Path | None) -> Iterator[Self]:
        """Yield the directory, with logs in `kept` if that is given; released again if the block fails.

        Raises as the class does.
        """
        folder = cls(path, term, kept, logs=kept)
        try:
            yield folder
        except BaseException:
            folder.close()
            raise

    def close(self) -> None:
        """Release the directory. Closing twice does no harm."""
        self._state_dir_lock.close()

    @property
    def is_current(self) -> bool:
        """Return False if another service has led since, with a folder of its own: only the nodes know their gangs."""
        return self._state_dir_lock.is_current

    def own(self, path: Path) -> Path:
        """Return the path through this service's own link: it leads nowhere once another service has taken over."""
        return self._state_dir_lock.path / path.relative_to(self._path)

    def places(self, job_id: JobId, generation: int) -> Places:
        """Return the paths of one gang's files. Raises InvalidRequest."""
        kept = self._kept or self._path
        places = Places(
            runtime=self._runtime,
            code_store=code_dir(kept),
            environments=environments_dir(kept),
            inputs=inputs_dir(kept),
            gang=self._path / "gangs" / job_id / str(generation),
            work=kept / "work" / job_id,
            checkpoints=kept / "checkpoints" / job_id,
            log=log_path(self._logs, job_id),
            outputs=kept / "outputs" / job_id,
            kept=self._kept,
        )
        assert places.gang.resolve().is_relative_to(self._path), "a job's files lie below the state directory"
        return places

    @property
    def warm(self) -> Path:
        """Return the folder of programs that wait for their lease."""
        return self._path / "warm"

    def own_gang(self, places: Places) -> Path:
        """Return the gang's directory through this service's own link, with its parent made."""
        places.gang.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.own(places.gang)

    def gangs(self) -> Iterator[tuple[Path, Path]]:
        """Yield directory and checkpoints of each launched gang, oldest first."""
        paths = [path for path in self.gangs_dir.glob("*/*/gang.json") if _is_gang(path.parent)]
        for path in sorted(paths, key=lambda path: path.lstat().st_mtime):
            yield path.parent, (self._kept or self._path) / "checkpoints" / path.parent.parent.name

    @property
    def gangs_dir(self) -> Path:
        """Return the folder of all gangs, GANGS/JOB/GENERATION, as their processes know it."""
        return self._path / "gangs"

    def check_usable(self) -> None:
        """Raise OSError if no gang's files can be written: a full disk, no descriptors, or another service took over.

        After it, a fault of one gang's files is that gang's own.
        """
        folder = self.own(self.gangs_dir)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_json(str(folder / "usable.json"), {})

    def check_held(self) -> None:
        """Raise FileNotFoundError if another service has taken over."""
        self._state_dir_lock.path.lstat()

    # --- fences: generations below are refused ---

    def fence(self, job_id: JobId) -> int:
        """Return the lowest generation of the job that may still start."""
        return self._fences.get(job_id, 0)

    def assume_fence(self, job_id: JobId, fence: int) -> None:
        """Raise the fence for this service only: the next service reads it from the gang's own directory."""
        self._fences[job_id] = max(fence, self.fence(job_id))

    def withdraw_fence(self, job_id: JobId, generation: int) -> None:
        """Let the generation start after all, unless the stored fence refuses it: no node has heard of it."""
        if self.fence(job_id) == generation + 1:
            self._fences[job_id] = _fence_in(self.places(job_id, 0).gang.with_name("fence.json"))

    def raise_fence(self, job_id: JobId, fence: int) -> None:
        """Refuse lower generations from now on, after a restart too."""
        path = self.places(job_id, 0).gang.with_name("fence.json")
        if _fence_in(path) < fence:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(str(self.own(path)), {"fence": fence})
        self.assume_fence(job_id, fence)

    def forget_job(self, job_id: JobId) -> None:
        """Drop the fence of a job that has ended: nothing is launched of it any more. Safe from any thread."""
        shutil.rmtree(self.own(self.places(job_id, 0).gang.parent), ignore_errors=True)
        self._fences.pop(job_id, None)

    # --- what else is kept ---

    def resources(self) -> tuple[EphemeralResource, ...]:
        """Return the ephemeral resources as last stored."""
        stored = read_object(self._path / "resources.json") or {}
        try:
            return tuple(EphemeralResource(**fields) for fields in stored.get("resources", ()))
        except TypeError:  # not what a service has written
            return ()

    def keep_resources(self, resources: Iterable[EphemeralResource]) -> None:
        """Store the resources for the next service."""
        write_json(str(self.own(self._path / "resources.json")), {"resources": [record_of(each) for each in resources]})

    def keep_checkpoint(self, job_id: JobId, checkpoint: str) -> None:
        """Delete older checkpoints of the job but the newest of them. Raises InvalidRequest."""
        keep_checkpoint(self.places(job_id, 0).checkpoints, checkpoint)


def _fence_in(path: Path) -> int:
    """Return the fence in a file; 0 if it holds none."""
    fence = (read_object(path) or {}).get("fence")
    return fence if type(fence) is int and 0 <= fence <= FENCE_MAX else 0


def _is_gang(directory: Path) -> bool:
    """Return whether this is a folder that a service makes for a gang, GANGS/JOB/GENERATION, and no link."""
    is_named = JOB_ID.fullmatch(directory.parent.name) and GENERATION.fullmatch(directory.name)
    return bool(is_named) and not directory.is_symlink() and not directory.parent.is_symlink()


def environments_dir(state_dir: Path) -> Path:
    """Return the folder of the environments that setups of jobs make."""
    return state_dir / "environments"


def inputs_dir(state_dir: Path) -> Path:
    """Return the folder of the inputs that were fetched for jobs."""
    return state_dir / "inputs"


def log_path(state_dir: Path, job_id: JobId) -> Path:
    """Return the path of a job's log, for those who only read. Raises InvalidRequest."""
    if not JOB_ID.fullmatch(job_id):
        raise InvalidRequest("job_id", f"{job_id!r} must be 1 to 63 of a-z, 0-9 and '-'")
    return jobs_logs_dir(state_dir) / f"{job_id}.log"


def jobs_logs_dir(state_dir: Path) -> Path:
    """Return the folder of the logs of jobs."""
    return state_dir / "logs"
