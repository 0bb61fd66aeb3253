"""Which checkpoints of a job stay: the accepted one, newer ones, and the one before, in case it cannot be loaded."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from gavel.errors import InvalidRequest

CHECKPOINT = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def keep_checkpoint(folder: Path, checkpoint: str) -> None:
    """Delete the checkpoints in the folder that are older than this one, but the newest of them.

    Raises InvalidRequest.
    """
    if not CHECKPOINT.fullmatch(checkpoint):
        raise InvalidRequest("checkpoint", f"{checkpoint!r} is not GENERATION-STEP")
    for name in older_ones(_names(folder), checkpoint)[:-1]:
        shutil.rmtree(folder / name, ignore_errors=True)  # what cannot be deleted now is deleted with the next one


def previous_checkpoint(folder: Path, checkpoint: str) -> Path | None:
    """Return the newest checkpoint in the folder that is older than this one."""
    older = older_ones(_names(folder), checkpoint)
    return folder / older[-1] if older else None


def older_ones(names: Iterable[str], than: str) -> list[str]:
    """Return the names of the checkpoints that are older than this one, the newest of them last."""
    older = [name for name in names if is_older(name, than)]
    return sorted(older, key=lambda name: tuple(map(int, name.split("-"))))


def is_older(name: str, than: str) -> bool:
    """Return True for a checkpoint of a smaller generation, or of the same generation after fewer steps."""
    one, other = CHECKPOINT.fullmatch(name), CHECKPOINT.fullmatch(than)
    if one is None or other is None:
        return False
    return (int(one[1]), int(one[2])) < (int(other[1]), int(other[2]))


def _names(folder: Path) -> list[str]:
    """Return the names of the folders in a folder; none if there is none."""
    if not folder.is_dir():
        return []
    return [path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
