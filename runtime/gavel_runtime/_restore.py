"""Loading the checkpoint to resume from; the one before it where that fails."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gavel_runtime._lease import boottime_s, running_s
from gavel_runtime._setting import Setting

ERROR_LENGTH_MAX = 400
FETCH_LIMIT_S = 600.0
FETCH_POLL_S = 0.05


@dataclass(frozen=True)
class Resumed:
    """Where the job goes on: after `step` steps; the `note` says that this is not the accepted checkpoint.

    `startup_s` is how many seconds passed from the start of the process to the loop over its steps, `restore_s` how
    many loading took; `folder` is the checkpoint that was loaded.
    """

    step: int
    folder: Path | None = None
    note: str = ""
    startup_s: float = 0.0
    restore_s: float = 0.0


def resumed(setting: Setting, restore: Callable[[Path], object] | None) -> Resumed:
    """Call `restore` with the checkpoint, if there is one; if it raises, with the one before.

    Raises RuntimeError if there is none that loads. In a gang only the accepted one is tried: every rank has to begin
    at the same step.
    """
    started_s = boottime_s()
    startup_s = running_s(started_s)
    if setting.checkpoint is None or restore is None:
        return Resumed(setting.start_step, startup_s=startup_s)
    step, note = _restored(setting, setting.checkpoint, restore)
    folder = setting.previous_checkpoint if note else setting.checkpoint
    return Resumed(step, folder, note, startup_s, boottime_s() - started_s)


def _restored(setting: Setting, checkpoint: Path, restore: Callable[[Path], object]) -> tuple[int, str]:
    if setting.previous_checkpoint is None or setting.world_size > 1:
        _load(checkpoint, restore, "")
        return setting.start_step, ""
    try:
        restore(checkpoint)
    except Exception as error:
        _await_fetched(setting.previous_checkpoint, setting.gang_dir)
        return _restored_before(checkpoint, setting.previous_checkpoint, restore, error)
    return setting.start_step, ""


def _await_fetched(checkpoint: Path, gang_dir: Path | None) -> None:
    """Ask the node for a checkpoint that has to be fetched first, and wait until it is there or cannot be fetched."""
    if gang_dir is None or checkpoint.is_dir():
        return
    (gang_dir / "previous.wanted").touch()
    until_s = boottime_s() + FETCH_LIMIT_S
    while not (checkpoint.is_dir() or (gang_dir / "previous.failed").exists()) and boottime_s() < until_s:
        time.sleep(FETCH_POLL_S)


def _restored_before(
    checkpoint: Path, previous: Path, restore: Callable[[Path], object], error: Exception
) -> tuple[int, str]:
    step = int(previous.name.partition("-")[2])
    failure = f"{type(error).__name__}: {error}"
    note = (
        f"Checkpoint {checkpoint.name} could not be loaded. The job goes on from {previous.name}, the one before it,"
        f" and does the steps after {step} again. The error was: "
    )
    print(f"gavel: {note}{failure}", file=sys.stderr, flush=True)  # the whole of it, as secrets are masked on the way
    _load(previous, restore, f"; neither could {checkpoint.name} ({failure})")
    return step, note + _beginning(failure)


def _beginning(failure: str) -> str:
    """Return an error, cut where it is long: with `…` at the end, so that no part of a secret before it is shown."""
    return failure if len(failure) <= ERROR_LENGTH_MAX else failure[: ERROR_LENGTH_MAX - 1] + "…"


def _load(checkpoint: Path, restore: Callable[[Path], object], also: str) -> None:
    try:
        restore(checkpoint)
    except Exception as error:
        also = also or " (" + _beginning(f"{type(error).__name__}: {error}") + ")"
        raise RuntimeError(f"restore: checkpoint {checkpoint} could not be loaded{also}") from error
