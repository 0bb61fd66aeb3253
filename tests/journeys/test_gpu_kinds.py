"""The programs that `make bench-gpu` measures train on a CPU, too, in a size that is small enough for it."""

import subprocess

import pytest

from tests.journeys.journey import LIMIT_S, PYTHON, ROOT, WITH_LIBRARIES

STEPS = """
from benchmarks.gpu_programs import KINDS, Setting, built

for kind in KINDS:
    step = built(kind, Setting("cpu", is_tiny=True))
    step()
    step()
    print(kind)
"""


@WITH_LIBRARIES
@pytest.mark.timeout(LIMIT_S)
def test_each_kind_does_two_steps() -> None:
    done = subprocess.run([PYTHON, "-c", STEPS], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 14
