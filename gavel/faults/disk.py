"""The folder of checkpoints that all nodes share: it may be full, slow, or lose what it has said to have written."""

import shutil
from pathlib import Path

from gavel.types import JobId

CONTENT = "step"


class CheckpointDisk:
    """Real folders, `JOB/GENERATION-STEP`, since the service deletes old ones by its own rule."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_full = False
        self.is_torn = False
        self.write_s = 0.2  # seconds that a checkpoint takes

    def write(self, job_id: JobId, generation: int, step: int) -> str | None:
        """Return the name of a new checkpoint; None where the disk is full."""
        if self.is_full:
            return None
        name = f"{generation}-{step}"
        folder = self.root / job_id / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONTENT).write_text("" if self.is_torn else str(step))
        return name

    def read(self, job_id: JobId, name: str) -> int | None:
        """Return the step that the checkpoint holds; None if it is gone or cannot be read."""
        try:
            return int((self.root / job_id / name / CONTENT).read_text())
        except (OSError, ValueError):
            return None

    def exists(self, job_id: JobId, name: str) -> bool:
        """Return True if the checkpoint is there, readable or not."""
        return (self.root / job_id / name).is_dir()

    def delete(self, job_id: JobId) -> None:
        """Delete all of the job's checkpoints."""
        shutil.rmtree(self.root / job_id, ignore_errors=True)
