"""Runs a program that cannot be changed: `dump`, a command of its user, saves its state, `restore` gives it back.

    python -m gavel_runtime._hooks DUMP RESTORE PROGRAM ARGUMENTS ..

Both are lines for `sh`. They run where the program runs, with its environment and `GAVEL_SNAPSHOT_DIR`: an empty folder
for `dump` to fill while the program goes on, the filled one for `restore`, before the program starts. `dump` has the
program's process as `GAVEL_PROGRAM_PID`, too. A step of such a job is a second of its program's run.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gavel_runtime._errors import NotSaved
from gavel_runtime._job import job

STEP_S = 1.0
END_S = 3.0  # from SIGTERM to SIGKILL; the supervisor waits a little longer


class Hooked:
    """The program, and the commands that dump and restore what it has done."""

    def __init__(self, dump: str, restore: str, argv: Sequence[str]) -> None:
        self._dump, self._restore = dump, restore
        self._argv = [sys.executable if argv[0] == "python" else argv[0], *argv[1:]]
        self._program: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program."""
        try:
            self._program = subprocess.Popen(self._argv)
        except OSError as error:
            print(f"gavel: cannot run {self._argv[0]}: {error.strerror}", file=sys.stderr)
            raise SystemExit(127) from None

    def has_ended(self) -> bool:
        """Wait for the program's end, for a step at most; return whether it came. It ends this process if it failed."""
        assert self._program is not None
        try:
            code = self._program.wait(STEP_S)
        except subprocess.TimeoutExpired:
            return False
        if code:
            _end_like(code)
        return True

    def end(self) -> None:
        """End the program, if it still runs."""
        if self._program is None or self._program.poll() is not None:
            return
        self._program.terminate()
        try:
            self._program.wait(END_S)
        except subprocess.TimeoutExpired:
            self._program.kill()

    def dump(self, folder: Path) -> None:
        """Fill the folder. Raises NotSaved if the command fails: the program goes on all the same."""
        assert self._program is not None
        code = _run(self._dump, folder, GAVEL_PROGRAM_PID=str(self._program.pid))
        if code:
            print(
                f"gavel: {_failed('dump', code)}; the program goes on, nothing was saved", file=sys.stderr, flush=True
            )
            raise NotSaved

    def restore(self, folder: Path) -> None:
        """Give back what the folder has. Raises RuntimeError if the command fails."""
        if code := _run(self._restore, folder):
            raise RuntimeError(_failed("restore", code))


def _run(line: str, folder: Path, **more: str) -> int:
    environment = {**os.environ, "GAVEL_SNAPSHOT_DIR": str(folder), **more}
    return subprocess.run(line, shell=True, env=environment, check=False).returncode  # noqa: S602  a line for the shell


def _failed(name: str, code: int) -> str:
    return f"the {name} command ended with exit code {code}" if code > 0 else f"the {name} command was killed ({-code})"


def _end_like(code: int) -> NoReturn:
    """End as the program did: by the same signal, or with the same exit code."""
    if code < 0:
        if -code != signal.SIGKILL:  # whose action cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    raise SystemExit(code)


def main(dump: str, restore: str, *argv: str) -> None:
    """Run the program in leases: from the newest snapshot on, to its end. Raises SystemExit as it ends, or with 75."""
    hooked = Hooked(dump, restore, argv)
    with job.loop(checkpoint=hooked.dump, restore=hooked.restore, is_measured=False) as loop:
        try:
            hooked.start()
            while not loop.is_ended and loop.next():
                has_ended = job.all_gather(b"1" if hooked.has_ended() else b"0")
                loop.step_done()
                if all(each == b"1" for each in has_ended):
                    loop.finish(saves=False)
        finally:
            hooked.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
