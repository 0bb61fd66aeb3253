"""How many steps a job has: as it was submitted, else as its script says."""

import sys
from operator import index

from gavel_runtime._setting import Setting

TOTAL_STEPS_MAX = 10**12


def total_of(setting: Setting, total: int | None) -> int:
    """Return how many steps the job has: what the service knows already, else `total`, which the script says.

    Rank 0 writes a line to its log if the two differ. Raises ValueError, also for a `total` that no job can have.
    """
    try:
        total = None if total is None else index(total)  # also a whole number of numpy
    except TypeError:
        raise ValueError(f"total: {total!r} is no whole number of steps") from None
    if total is not None and not 1 <= total <= TOTAL_STEPS_MAX:
        raise ValueError(f"total: {total} steps; give 1 to {TOTAL_STEPS_MAX}")
    agreed = setting.total_steps
    if agreed is None and total is None:
        why = "the job was submitted without --steps" if setting.gang_dir else "not run by Gavel"
        raise ValueError(f"total: {why}, so say how many steps: job.steps(total=1000)")
    if agreed is not None and total not in (None, agreed) and setting.rank == 0:
        text = f"gavel: the job has {agreed} steps, as submitted or as it said first; total={total} is not used"
        print(text, file=sys.stderr)
    return agreed if agreed is not None else int(total or 0)
