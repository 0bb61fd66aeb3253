"""What the ranks of a gang use, on its way from the disks of its nodes to the file beside the job's log."""

from collections.abc import Collection
from pathlib import Path

from gavel.backends.utilization import UtilizationSample, append_samples, samples_of


def take(log: Path, text: bytes, *, generation: int, ranks: Collection[int]) -> None:
    """Append what a node sent of the samples of its ranks; what is none is left out. Raises OSError."""
    samples = [sample for line in text.splitlines() for sample in samples_of(line)]
    mine = [sample for sample in samples if sample.generation == generation and sample.rank in ranks]
    of_instant: dict[float, list[UtilizationSample]] = {}
    for sample in mine:
        of_instant.setdefault(sample.at_s, []).append(sample)
    append_samples(log, [of_instant[at_s] for at_s in sorted(of_instant)])
