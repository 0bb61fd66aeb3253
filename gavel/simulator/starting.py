"""Which gangs of a simulation stay for the next round because they have not trained for long enough to keep it."""

import numpy as np

from gavel.mechanism.planning.starting import LEASES_WITHOUT_CHECKPOINT, LeaseSoFar, stays
from gavel.simulator.active import Active


def rows_staying(active: Active, now_s: float, *, start_limit_s: float) -> list[tuple[int, ...]]:
    """Return, for each row whose gang stays in the round that starts at `now_s`, the rows on its workers that stay."""
    holds = active.column >= 0
    starts = active.training_from_s > now_s
    rows = np.flatnonzero(holds & (starts | (active.leases_without_checkpoint >= LEASES_WITHOUT_CHECKPOINT))).tolist()
    staying = [row for row in rows if stays(_lease(active, row, now_s), now_s, start_limit_s=start_limit_s)]
    row_of = {active.indices[row]: row for row in staying}
    partner = {row: row_of.get(active.partner[row]) for row in staying}
    return [(row,) if (other := partner[row]) is None else (row, other) for row in staying]


def _lease(active: Active, row: int, now_s: float) -> LeaseSoFar:
    since_s = float(active.training_from_s[row])
    return LeaseSoFar(
        started_at_s=float(active.started_at_s[row]),
        training_since_s=since_s if since_s <= now_s else None,
        leases_without_checkpoint=int(active.leases_without_checkpoint[row]),
        longest_without_checkpoint_s=float(active.longest_without_checkpoint_s[row]),
    )
