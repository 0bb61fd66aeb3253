"""The checkpoints of jobs at an fsspec URL, as the service shows them and hands them out."""

from collections.abc import Iterator

from gavel.backends.checkpoint_retention import CHECKPOINT
from gavel.backends.checkpoints import (
    END,
    CheckpointFolder,
    Checkpoints,
    member,
    no_checkpoint,
    too_many_files,
)
from gavel.backends.folder import JOB_ID
from gavel.backends.job_folder import ENTRIES_MAX
from gavel.backends.nodes.storage_errors import answering
from gavel.backends.nodes.transfers import RemoteCheckpoints
from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.types import JobId


class StoredCheckpoints:
    """The checkpoints below a URL, with the calls of `Checkpoints`; all raise BackendUnavailable, too."""

    def __init__(self, url: str) -> None:
        self._url = url

    def listing(self, job_id: JobId) -> tuple[CheckpointFolder, ...]:
        """Return the job's checkpoints that are stored, the newest first."""
        if not JOB_ID.fullmatch(job_id):
            return ()
        with answering("storage of checkpoints"):
            remote = RemoteCheckpoints(self._url)
            names = [name for name in remote.names(job_id) if CHECKPOINT.fullmatch(name)]
            folders = [_described(remote, job_id, name) for name in names]
        return tuple(sorted(folders, key=lambda each: (each.generation, each.step), reverse=True))

    def copy(self, job_id: JobId, name: str) -> str:
        """Raise InvalidRequest: none can be kept for another job."""
        message = f"the checkpoints of job {job_id} are at a URL, from where another job cannot take {name}"
        raise InvalidRequest(
            "from_checkpoint", f"{message}; download it, and give it to the new job as an input (--data)"
        )

    def tar(self, job_id: JobId, name: str) -> Iterator[bytes]:
        """Return the bytes of a tar archive of the checkpoint's files. Raises NotFound, InvalidRequest.

        While it is read it raises what the storage raises: an archive that is cut off is never taken for whole.
        """
        if all(each.name != name for each in self.listing(job_id)):
            raise no_checkpoint(job_id, name)
        with answering("storage of checkpoints"):
            remote = RemoteCheckpoints(self._url)
            sizes = remote.files(job_id, name)
        if len(sizes) >= ENTRIES_MAX:
            raise too_many_files(name)
        return _archive(remote, job_id, name, sizes)


def checkpoints_of(settings: Settings) -> Checkpoints | StoredCheckpoints:
    """Return the checkpoints of the service with these settings."""
    folder = settings.checkpoints_dir
    return StoredCheckpoints(settings.shared_checkpoints) if folder is None else Checkpoints(folder)


def _described(remote: RemoteCheckpoints, job_id: JobId, name: str) -> CheckpointFolder:
    sizes = remote.files(job_id, name)
    generation, step = name.split("-")
    return CheckpointFolder(
        name=name,
        generation=int(generation),
        step=int(step),
        size_bytes=sum(sizes.values()),
        written_at_s=remote.written_at_s(job_id, name, next(iter(sizes))) if sizes else 0.0,
    )


def _archive(remote: RemoteCheckpoints, job_id: JobId, name: str, sizes: dict[str, int]) -> Iterator[bytes]:
    for path, size_bytes in sizes.items():
        if {"", ".", ".."} & {*path.split("/")}:
            continue
        written_at_s = remote.written_at_s(job_id, name, path)
        with remote.open(job_id, name, path) as file:
            yield from member(file.read, f"{name}/{path}", size_bytes, written_at_s)
    yield END
