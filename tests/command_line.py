"""The command `gavel` in a folder of its own: as a process, and, where the process is not the point, in this one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from gavel.cli import main

Done = subprocess.CompletedProcess[str]


@dataclass
class Shell:
    """Runs `gavel` in an empty folder with nothing of the caller's environment."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def whole_env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "COLUMNS": "200", "PYTHONPATH": os.getcwd(), **self.env}

    @contextmanager
    def start(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """A command, which does not outlive the block."""
        command = [sys.executable, "-m", "gavel.cli", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=self.folder, env=self.whole_env, text=True, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str) -> Done:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


class QuickShell(Shell):
    """Runs each command in this process, which has imported everything: the same `main`, streams and environment."""

    def run(self, *arguments: str) -> Done:
        env = {name: self.whole_env.get(name) for name in {*os.environ, *self.whole_env}}
        with CliRunner().isolation(env=env) as (out, err, _), chdir(self.folder):
            with patch.object(sys, "argv", ["gavel", *arguments]):
                code = exit_code()
            sys.stdout.flush()
            sys.stderr.flush()
        return subprocess.CompletedProcess(arguments, code, out.getvalue().decode(), err.getvalue().decode())


def exit_code() -> int:
    """Run `main` and return the exit code of its process."""
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
