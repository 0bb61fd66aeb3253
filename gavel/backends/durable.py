"""Files of the state folder that must not be lost, nor read by others: whole on the disk before the call returns."""

import os
import time
from contextlib import suppress
from pathlib import Path


def write_durable(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file, readable by this user only, whole or not at all; with `replace=False` one that is there stays.

    Several processes may write the same at once. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        temporary.rename(path)
    else:
        with suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    sync_folder(path.parent)
    sync_folder(path.parent.parent)  # the folder itself may be new


def sync_folder(path: Path) -> None:
    """Wait until the names in the folder are on the disk: what was acknowledged outlives a loss of power."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
