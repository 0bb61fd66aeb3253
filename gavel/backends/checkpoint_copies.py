"""Checkpoints that other jobs begin with: a copy of each, which the job that wrote it neither changes nor removes."""

import os
import shutil
import stat
import time
from pathlib import Path

from gavel.backends.durable import sync_folder
from gavel.backends.job_folder import ENTRIES_MAX, entries, open_file
from gavel.errors import InvalidRequest
from gavel.types import JobId


def copied_checkpoint(root: Path, origin: str) -> Path:
    """Return where the copy of a checkpoint is; `origin` is JOB/NAME, `root` the folder of all checkpoints."""
    return root / ".copies" / origin


def copy_checkpoint(root: Path, job_id: JobId, name: str) -> str:
    """Keep a checkpoint for a job that begins with it, whole and on the disk; return its origin, JOB/NAME.

    Files are hard links where the disk can. Raises InvalidRequest if it cannot be taken, OSError.
    """
    source, target = root / job_id / name, copied_checkpoint(root, f"{job_id}/{name}")
    if target.is_dir():
        return f"{job_id}/{name}"
    temporary = target.with_name(f".{name}.{os.getpid()}.{time.monotonic_ns()}")
    temporary.mkdir(mode=0o700, parents=True)
    try:
        _copy(source, temporary)
        temporary.rename(target)
    except OSError:
        if not target.is_dir():  # else another request was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for folder in (target.parent, target.parent.parent, root):
        sync_folder(folder)
    return f"{job_id}/{name}"


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir() or source.is_symlink():
        raise InvalidRequest("from_checkpoint", f"checkpoint {source.name} is gone; ask again for the newest")
    inside = list(entries(str(source)))
    if len(inside) >= ENTRIES_MAX:
        raise InvalidRequest("from_checkpoint", f"checkpoint {source.name} has {ENTRIES_MAX:,} files or more")
    for path, status in inside:
        if not stat.S_ISREG(status.st_mode):
            raise InvalidRequest("from_checkpoint", f"{path} of checkpoint {source.name} is no regular file")
        (target / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_file(open_file(str(source), path), target / path)
    for folder, _, _ in os.walk(target):
        sync_folder(Path(folder))


def _copy_file(file: int, target: Path) -> None:
    """Make the open file appear at `target`, too: what was opened, whatever its name leads to by now."""
    try:
        os.link(
            f"/proc/self/fd/{file}", target, src_dir_fd=file
        )  # without a descriptor the link itself would be linked
    except OSError:  # a file system without hard links
        with open(os.dup(file), "rb") as source, open(target, "xb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
    finally:
        os.close(file)
