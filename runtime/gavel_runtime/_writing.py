"""A checkpoint that is being written: at once, or in a thread while the training goes on."""

import threading
from collections.abc import Callable
from pathlib import Path

from gavel_runtime._checkpoint import complete_checkpoint, whole_or_absent
from gavel_runtime._lease import boottime_s
from gavel_runtime._reports import Measured


class Writing:
    """One checkpoint after `step` steps, with what was measured since the report before it.

    While it is written no other report is made, because steps in reports never go back.
    """

    def __init__(self, folder: Path, step: int, measured: Measured) -> None:
        self._folder = folder
        self.step, self.measured = step, measured
        self.lasted_s, self.size_bytes = 0.0, 0
        self._began_s = boottime_s()
        self._thread: threading.Thread | None = None
        self._path: Path | None = None
        self._error: BaseException | None = None

    def begin(self, fill: Callable[[Path], object]) -> None:
        """Let `fill` write into the folder. If it returns a function, that does the rest in a thread."""
        with whole_or_absent(self._folder):
            rest = fill(self._folder)
        if callable(rest):
            self._thread = threading.Thread(target=self._complete_later, args=(rest,), name="gavel-checkpoint")
            self._thread.start()
        else:
            self._complete(lambda: None)

    def is_done(self) -> bool:
        """Return whether `finished` would return at once."""
        return self._thread is None or not self._thread.is_alive()

    def finished(self) -> Path:
        """Wait until the checkpoint is on the disk, and return its path. Raises what writing it raised."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._path is not None
        return self._path

    def _complete_later(self, rest: Callable[[], object]) -> None:
        try:
            self._complete(rest)
        except BaseException as error:
            self._error = error

    def _complete(self, rest: Callable[[], object]) -> None:
        with whole_or_absent(self._folder):
            rest()
            self._path = complete_checkpoint(self._folder)
        self.size_bytes = _size_bytes(self._path)
        self.lasted_s = boottime_s() - self._began_s


def _size_bytes(folder: Path) -> int:
    """Return the bytes of the files in the folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
