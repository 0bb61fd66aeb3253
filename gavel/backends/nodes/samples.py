"""What the ranks of a gang use, on its way from the disks of its nodes to the file beside the job's log."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

from gavel.backends.utilization import UtilizationSample, append_samples, samples_of, utilization_path

BYTES_PER_ANSWER = 1 << 14


def read_new(log: Path, offset: int) -> tuple[bytes, int]:
    """Return whole lines of the samples beside a gang's log from `offset` on, and the offset after them.

    The job may have put anything there: links are not followed, pipes are not waited for. A file that is shorter by now
    was thinned: what follows is taken, what is in it was taken before.
    """
    try:
        file = os.open(utilization_path(log), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b"", offset
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size < offset:
            return b"", status.st_size if stat.S_ISREG(status.st_mode) else offset
        text = os.pread(file, BYTES_PER_ANSWER, offset)
    finally:
        os.close(file)
    whole = len(text) if len(text) == BYTES_PER_ANSWER and b"\n" not in text else text.rfind(b"\n") + 1
    return text[:whole], offset + whole


def take(log: Path, text: bytes, *, generation: int, ranks: Collection[int]) -> None:
    """Append what a node sent of the samples of its ranks; what is none is left out. Raises OSError."""
    samples = [sample for line in text.splitlines() for sample in samples_of(line)]
    mine = [sample for sample in samples if sample.generation == generation and sample.rank in ranks]
    of_instant: dict[float, list[UtilizationSample]] = {}
    for sample in mine:
        of_instant.setdefault(sample.at_s, []).append(sample)
    append_samples(log, [of_instant[at_s] for at_s in sorted(of_instant)])
