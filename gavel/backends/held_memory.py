"""The memory that gangs were seen to hold on their accelerators, from the samples beside their jobs' logs."""

from pathlib import Path

from gavel.backends.gang import GangKey
from gavel.backends.utilization import read_new_samples, samples_of


class HeldMemory:
    """Reads each gang's samples from where it stopped; those of other generations in the same file are left out."""

    def __init__(self) -> None:
        self._read_until: dict[GangKey, int] = {}

    def newest_bytes(self, key: GangKey, log: Path) -> int:
        """Return the most in use on one accelerator of the gang in the samples since the last call; 0: none is known.

        It is of all processes there, those of a job that shares the accelerator included.
        """
        text, self._read_until[key] = read_new_samples(log, self._read_until.get(key, 0))
        own = (each for line in text.splitlines() for each in samples_of(line) if each.generation == key[1])
        return max((each.accelerator_memory_bytes or 0 for each in own), default=0)

    def forget(self, key: GangKey) -> None:
        """Drop what is kept of a gang that has ended."""
        self._read_until.pop(key, None)
