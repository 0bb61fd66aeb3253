"""Checkpoints and output files of jobs, as the service shows them, where regions keep them in different places."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gavel.backends.checkpoints import CheckpointFolder, Checkpoints, no_checkpoint
from gavel.backends.nodes.stored_checkpoints import StoredCheckpoints, checkpoints_of
from gavel.backends.nodes.stored_outputs import StoredFile, StoredOutputs, outputs_of, outputs_place
from gavel.backends.outputs import JobFile, Listing, Outputs, no_file
from gavel.config import Settings
from gavel.errors import BackendUnavailable, NotFound
from gavel.types import JobId

OneCheckpoints = Checkpoints | StoredCheckpoints
OneOutputs = Outputs | StoredOutputs
P = TypeVar("P")
T = TypeVar("T")


def all_checkpoints(settings: Settings) -> "OneCheckpoints | SeveralCheckpoints":
    """Return the checkpoints of the service with these settings, in all the places of its regions."""
    places = {_checkpoints_place(own): own for own in settings.by_region.values()}
    parts = [checkpoints_of(own) for own in places.values()]
    return parts[0] if len(parts) == 1 else SeveralCheckpoints(parts)


def all_outputs(settings: Settings) -> "OneOutputs | SeveralOutputs":
    """Return the output files of the service with these settings, in all the places of its regions."""
    places = {outputs_place(own): own for own in settings.by_region.values()}
    parts = [outputs_of(own) for own in places.values()]
    return parts[0] if len(parts) == 1 else SeveralOutputs(parts)


class SeveralCheckpoints:
    """Checkpoints in several places, with the calls of `Checkpoints`. A place that cannot be read is left out."""

    def __init__(self, parts: Sequence[OneCheckpoints]) -> None:
        self._parts = parts

    def listing(self, job_id: JobId) -> tuple[CheckpointFolder, ...]:
        """Return the job's checkpoints, the newest first, each once. Raises BackendUnavailable if no place answers."""
        by_name = {each.name: each for one in _read(self._parts, lambda part: part.listing(job_id)) for each in one}
        return tuple(sorted(by_name.values(), key=lambda each: (each.generation, each.step), reverse=True))

    def copy(self, job_id: JobId, name: str) -> str:
        """Keep a checkpoint for a job that begins with it; return its origin. Raises as `Checkpoints`, and NotFound."""
        return self._with(job_id, name).copy(job_id, name)

    def tar(self, job_id: JobId, name: str) -> Iterator[bytes]:
        """Return the bytes of a tar archive of the checkpoint. Raises NotFound, InvalidRequest."""
        return self._with(job_id, name).tar(job_id, name)

    def _with(self, job_id: JobId, name: str) -> OneCheckpoints:
        for part in self._parts:
            if any(each.name == name for one in _read([part], lambda part: part.listing(job_id)) for each in one):
                return part
        raise no_checkpoint(job_id, name)


class SeveralOutputs:
    """Output files in several places, with the calls of `Outputs`. A place that cannot be read is left out."""

    def __init__(self, parts: Sequence[OneOutputs]) -> None:
        self._parts = parts

    def listing(self, job_id: JobId) -> Listing:
        """Return the files of a job; of a path in two places the newer file. Raises BackendUnavailable, NotFound."""
        listings = _read(self._parts, lambda part: part.listing(job_id))
        newest: dict[str, JobFile] = {}
        for each in sorted((file for one in listings for file in one.files), key=lambda file: file.modified_at_s):
            newest[each.path] = each
        return Listing(
            files=tuple(newest[path] for path in sorted(newest)),
            left_out=sum(one.left_out for one in listings),
            is_cut=any(one.is_cut for one in listings),
        )

    def open(self, job_id: JobId, path: str) -> int | StoredFile:
        """Return the newer of the files at this path, open. Raises NotFound, BackendUnavailable."""
        dated = [
            (file.modified_at_s, index)
            for index, part in enumerate(self._parts)
            for one in _read([part], lambda part: part.listing(job_id))
            for file in one.files
            if file.path == path
        ]
        if not dated:
            raise no_file(job_id, path)
        return self._parts[max(dated)[1]].open(job_id, path)

    def clear(self, ended_before: Callable[[JobId, float], bool], kept_s: float) -> None:
        """Delete the files of jobs for which `ended_before(job_id, instant)` holds; the instant is `kept_s` ago."""
        for part in self._parts:
            part.clear(ended_before, kept_s)


def _read(parts: Sequence[P], read: Callable[[P], T]) -> list[T]:
    """Return what those parts say that can be read. Raises BackendUnavailable if none can, NotFound."""
    answers, problem = list[T](), ""
    for part in parts:
        try:
            answers.append(read(part))
        except NotFound:
            raise
        except (BackendUnavailable, OSError) as error:
            problem = str(error)
    if not answers and len(parts) > 1:
        raise BackendUnavailable(problem)
    return answers


def _checkpoints_place(settings: Settings) -> str:
    return str(settings.checkpoints_dir or settings.shared_checkpoints)
