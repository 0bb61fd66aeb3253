"""The folder of checkpoints that all nodes share: it may be full, slow, or lose what it has said to have written."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from gavel.backends.checkpoint_retention import previous_checkpoint
from gavel.types import JobId

CONTENT = "step"


class CheckpointDisk:
    """Real folders, `JOB/GENERATION-STEP`, since the service deletes old ones by its own rule."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.is_full = False
        self.is_torn = False
        self.write_s = 0.2  # seconds that a checkpoint takes

    def write(self, job_id: JobId, generation: int, step: int) -> str | None:
        """Return the name of a new checkpoint; None where the disk is full."""
        if self.is_full:
            return None
        name = f"{generation}-{step}"
        folder = self._folder(job_id, name)
        with suppress(FileExistsError):
            os.makedirs(folder)
        with open(os.path.join(folder, CONTENT), "w", encoding="utf-8") as file:
            file.write("" if self.is_torn else str(step))
        return name

    def read(self, job_id: JobId, name: str) -> int | None:
        """Return the step that the checkpoint holds; None if it is gone or cannot be read."""
        try:
            with open(os.path.join(self._folder(job_id, name), CONTENT), encoding="utf-8") as file:
                return int(file.read())
        except (OSError, ValueError):
            return None

    def before(self, job_id: JobId, name: str) -> str:
        """Return the name of the checkpoint before this one, as a job is given it; "" if there is none."""
        path = previous_checkpoint(self.root / job_id, name)
        return path.name if path else ""

    def exists(self, job_id: JobId, name: str) -> bool:
        """Return True if the checkpoint is there, readable or not."""
        return os.path.isdir(self._folder(job_id, name))

    def _folder(self, job_id: JobId, name: str) -> str:
        return os.path.join(self.root, job_id, name)

    def delete(self, job_id: JobId) -> None:
        """Delete all of the job's checkpoints."""
        shutil.rmtree(self.root / job_id, ignore_errors=True)
