"""A program that trains by the runtime and keeps checkpoints, for tests over real processes."""

import sys

_PROGRAM = """
import time
from gavel_runtime import job
save = lambda path: (path / 'weights').write_text('some')
load = lambda path: (path / 'weights').read_text()
for step in job.steps(checkpoint=save, restore=load): time.sleep({step_s})
"""


def trains(step_s: float) -> list[str]:
    """The words of a program whose steps take so many seconds."""
    return [sys.executable, "-c", _PROGRAM.format(step_s=step_s)]
