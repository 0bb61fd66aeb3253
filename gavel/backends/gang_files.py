"""The folder of a gang: what service and supervisor write, and below it, apart, what the job's processes write.

In a sandbox a job cannot write the first part. It reads the files there that are meant for it by links in its own.
"""

import os
import shutil
from pathlib import Path

from gavel.backends.machine import JOB_FILES
from gavel.backends.unix_users import give, show

FOR_THE_JOB = ("lease.json", "waits.json", "starts.jsonl", "ends.jsonl", "previous.failed")
TEMPORARY = "tmp"
NOT_STARTED = 127  # exit code of a task that could not be started


def make_gang_folder(folder: Path) -> None:
    """Make the folder with its parts; what is there stays. Raises OSError. Its parents are there."""
    for each in (folder, folder / JOB_FILES, folder / TEMPORARY):
        each.mkdir(mode=0o700, exist_ok=True)
    for name in FOR_THE_JOB:
        if not (folder / JOB_FILES / name).is_symlink():
            (folder / JOB_FILES / name).symlink_to(os.path.join("..", name))


def give_gang_folder(folder: Path, uid: int) -> None:
    """Let a user write the job's parts of the folder, and read the rest. Raises OSError."""
    if uid:
        show(str(folder), uid)
    for part in (JOB_FILES, TEMPORARY):
        give(str(folder / part), uid)


def job_files(folder: Path) -> Path:
    """Return where the job's processes write; the folder itself for a gang that an older service has started."""
    own = folder / JOB_FILES
    return folder if (folder / "launch.json").exists() and not own.is_dir() else own


def remove_gang_folder(folder: Path) -> None:
    """Delete the folder with all that is in it, whatever it is."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
