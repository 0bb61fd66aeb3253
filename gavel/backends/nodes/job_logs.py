"""The bounded log of each job: the output of its ranks on all nodes."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from gavel.backends.gang import GangKey
from gavel.backends.nodes.gang import Part
from gavel.backends.nodes.protocol import ShardSeen
from gavel.backends.nodes.samples import take
from gavel.backends.output import Log
from gavel.types import JobId


class JobLogs:
    """Appends to `folder/JOB.log`, as a supervisor does; a file stays open while its job may print."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._logs: dict[JobId, Log] = {}

    def append(self, job_id: JobId, output: bytes) -> None:
        """Append output of the job. Raises OSError if there is no folder for it."""
        if job_id not in self._logs:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._logs[job_id] = Log(str(self._folder / f"{job_id}.log"), self._limit_bytes)
        self._logs[job_id].write(output)

    def append_samples(self, key: GangKey, samples: bytes, ranks: Collection[int]) -> None:
        """Append what a node sent of the use of its ranks. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        take(self._folder / f"{key[0]}.log", samples, generation=key[1], ranks=ranks)

    def forget(self, job_id: JobId) -> None:
        """Close the job's file, as nothing of it runs any more; the log stays."""
        if job_id in self._logs:
            self._logs.pop(job_id).close()

    def close(self) -> None:
        """Close every file."""
        for job_id in list(self._logs):
            self.forget(job_id)

    def take(self, key: GangKey, part: Part, shard: ShardSeen) -> bool:
        """Append what a node sends of its part's output and samples; return False if it sends none."""
        if shard.log and shard.log_offset > part.log_offset:
            self.append(key[0], shard.log)
        if shard.samples and shard.samples_offset > part.samples_offset:
            with suppress(OSError):  # a full disk loses samples, nothing else
                self.append_samples(key, shard.samples, part.launch.ranks)
        return bool(shard.log or shard.samples)
