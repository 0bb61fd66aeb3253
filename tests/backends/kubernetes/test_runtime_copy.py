"""Gavel, brought into an image that lacks it, with an interpreter of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from gavel.backends.kubernetes import runtime_copy

PROGRAM = """
import sys, fsspec, gavel.backends.kubernetes.node as node, gavel_runtime
print(sys.prefix)
print(node.__file__)
"""


@pytest.mark.full
def test_the_copy_runs_the_agent_without_anything_of_where_it_came_from(tmp_path: Path) -> None:
    """1 copied by the command of the init container, 2 its interpreter finds agent and runtime in the copy alone."""
    copy = tmp_path / "copy"
    subprocess.run([sys.executable, "-P", "-m", runtime_copy.__name__, str(copy)], check=True, timeout=100)
    program = [str(copy / "bin" / "python"), "-P", "-c", PROGRAM]
    done = subprocess.run(program, cwd="/", env={}, capture_output=True, text=True, timeout=60, check=True)
    prefix, module = done.stdout.splitlines()
    assert (prefix, Path(module).is_relative_to(copy)) == (str(copy), True)
