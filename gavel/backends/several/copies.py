"""Checkpoints and output files of jobs that go on in another region: copied to its storage, in the background."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from gavel.backends.checkpoint_retention import older_ones
from gavel.backends.several.link_speeds import LinkSpeeds
from gavel.backends.several.output_copies import OutputCopies
from gavel.backends.several.storages import Storage, storage_at
from gavel.ports import LaunchGang
from gavel.types import JobId

log = structlog.get_logger("gavel.regions")

THREADS = 4
Wanted = tuple[JobId, str, str]
"""Job, checkpoint ("" for none) and region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Why a gang cannot start yet.

    With `left` it cannot at all: its checkpoint is gone, and this older one is left, "" if none is.
    """

    why: str
    left: str | None = None


def copy_threads() -> Executor:
    """Return what makes copies: a few threads."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="gavel-copies")


class Copies:
    """Brings checkpoints to the storages of regions. `places` has the folder or URL of each region's checkpoints.

    Where all regions share one place there is nothing to be done. `speeds` counts bytes and seconds of each copy.
    `outputs` brings the output files of jobs that have run before. `threads` make the copies.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        speeds: LinkSpeeds | None = None,
        outputs: OutputCopies | None = None,
        threads: Executor | None = None,
    ) -> None:
        self._places, self.speeds = places, speeds or LinkSpeeds()
        self._outputs = outputs or OutputCopies()
        self._threads = threads or copy_threads()
        self._running: dict[Wanted, Future[str]] = {}
        self._failed: dict[Wanted, str] = {}

    def held(self, launch: LaunchGang, region: str) -> Held | None:
        """Return why the gang cannot start in the region yet; None once its checkpoint and output files are there."""
        is_apart = len({*self._places.values()}) > 1
        wanted = (*_origin(launch), region) if is_apart else (launch.job_id, "", region)
        has_run = launch.generation > 1 and self._outputs.is_needed
        if not wanted[1] and not has_run:
            return None
        running = self._running.get(wanted)
        if running is None:
            outputs_of = launch.job_id if has_run else ""
            self._running[wanted] = self._threads.submit(self._bring, wanted, outputs_of)
        if running is None or not running.done():
            failed = self._failed.get(wanted)
            return Held(why=f"{_coming(wanted)}{f'; {failed}' if failed else ''}")
        return self._ended(wanted, running)

    def _ended(self, wanted: Wanted, ended: Future[str]) -> Held | None:
        """Return what came of a copy. A copy that failed is made again; one that is done is looked for again later."""
        del self._running[wanted]
        try:
            left = ended.result()
        except Exception as problem:  # of whichever storage this is
            log.warning("checkpoint.not_copied", job=wanted[0], checkpoint=wanted[1], error=str(problem))
            self._failed[wanted] = f"the last try failed: {problem}"
            return Held(why=f"{_coming(wanted)}; {self._failed[wanted]}")
        self._failed.pop(wanted, None)
        if left == wanted[1]:
            return None
        regions = " and ".join(sorted(self._places))
        why = f"checkpoint {wanted[1]} is gone, no region has it ({regions}); {left or 'no older one'} is left"
        return Held(why=why, left=left)

    def _bring(self, wanted: Wanted, outputs_of: JobId) -> str:
        """Return the checkpoint as `_checkpoint` does, once the output files of this job ("": of none) are there."""
        checkpoint = self._checkpoint(wanted) if wanted[1] else ""
        if outputs_of and checkpoint == wanted[1]:
            self._outputs.bring(outputs_of, wanted[2])
        return checkpoint

    def _checkpoint(self, wanted: Wanted) -> str:
        """Return the checkpoint once it is in the region; if it is gone the newest older one anywhere, "" without one.

        Other places are read only where the region does not have it, and one that cannot be read holds up nothing that
        another one has. Raises what the storages raise, and OSError if a place may be gone rather than what was in it.
        """
        job_id, name, region = wanted
        target = storage_at(self._places[region])
        if target.is_whole(job_id, name):
            return name
        has_it, problem = self._looked_for(wanted)
        origin = next((place for place, is_there in has_it.items() if is_there), None)
        if origin is not None:
            self._copy(wanted, target, origin)
            return name
        if problem is not None:
            raise problem
        return _newest_older(job_id, name, [target, *map(storage_at, has_it)])

    def _looked_for(self, wanted: Wanted) -> tuple[dict[str, bool], Exception | None]:
        """Whether each other place that can be read has the whole checkpoint; and why one cannot be read."""
        job_id, name, region = wanted
        has_it: dict[str, bool] = {}
        problem: Exception | None = None
        for place in sorted({*self._places.values()} - {self._places[region]}):
            try:
                has_it[place] = storage_at(place).is_whole(job_id, name)
            except Exception as error:  # of whichever storage this is
                problem = error
        return has_it, problem

    def _copy(self, wanted: Wanted, target: Storage, origin: str) -> None:
        job_id, name, region = wanted
        began_s = time.monotonic()
        target.put(job_id, name, storage_at(origin))
        seconds, size_bytes = time.monotonic() - began_s, sum(target.files(job_id, name).values())
        self.speeds.add([each for each, at in self._places.items() if at == origin], region, size_bytes, seconds)
        log.info("checkpoint.copied", job=job_id, checkpoint=name, region=region, bytes=size_bytes, seconds=seconds)

    def close(self) -> None:
        """Start no other copy."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _newest_older(job_id: JobId, name: str, storages: Sequence[Storage]) -> str:
    """Return the newest checkpoint before this one, anywhere; "" without one. Raises OSError if a place may be gone."""
    names = {each for storage in storages for each in storage.names(job_id)}
    is_unheard_of = not names and not any(each.has_folder(job_id) for each in storages)
    if is_unheard_of and any(each.is_empty() for each in storages):
        raise OSError("a place of checkpoints is empty; is its file system mounted?")
    return next(reversed(older_ones(names, name)), "")


def _origin(launch: LaunchGang) -> tuple[str, str]:
    """Return below which folder and under which name the checkpoint is that the gang begins with; no name: none."""
    if launch.checkpoint is not None:
        return launch.job_id, launch.checkpoint
    job_id, _, name = launch.from_checkpoint.partition("/")
    return (f".copies/{job_id}", name) if name else (launch.job_id, "")


def _coming(wanted: Wanted) -> str:
    what = f"its checkpoint {wanted[1]} is" if wanted[1] else "its output files are"
    return f"{what} copied to region {wanted[2]}"
