"""A process gives freed memory back, also where what is in use lies between."""

import subprocess
import sys

import pytest

from gavel import freed_memory

MEBIBYTE = 1 << 20

PROGRAM = """
from pathlib import Path
from gavel.freed_memory import give_back

def held_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

pieces = [bytes(2_000) for _ in range(50_000)]
del pieces[:-1]  # the last one lies above all that is free
before = held_bytes()
give_back()
print(before - held_bytes())
"""


@pytest.mark.skipif(freed_memory._malloc_trim is None, reason="the C library is not glibc")
def test_what_was_freed_below_something_in_use_is_given_back() -> None:
    given = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60)
    assert int(given.stdout) > 50 * MEBIBYTE


def test_another_c_library_keeps_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_malloc_trim", None)
    freed_memory.give_back()
