"""How long each user's gangs have held workers without a report: nobody holds the cluster with programs that never do.

A gang that has reported nothing stays at the end of its round (starting.py), so a user with many jobs that never report
would hold more than the allocation gives. Such time counts if jobs of other users waited at its end, in seconds of the
whole cluster: that of a gang on half of all workers counts half. Once a user's time reaches the limit, the user's gangs
that have reported nothing get ordinary rounds; a tenth of the time that passes is taken off again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gavel.types import Cluster, Job

REFILL = 0.1
DEBT_MAX = 2.0  # limits: what a user can owe at most


def cluster_s(job: Job, held_s: float, cluster: Cluster) -> float:
    """Return the time that a gang of the job held its workers, in seconds of the whole cluster."""
    return held_s * min(1.0, job.spec.scale_factor / max(1, len(cluster.workers)))


def charged(
    unreported_s: Mapping[str, float], ended: Iterable[tuple[str, float]], passed_s: float, *, start_limit_s: float
) -> dict[str, float]:
    """Return each user's time without a report, after `passed_s` seconds in which such gangs `ended`.

    `ended`: user and cluster seconds of each. A user without any is left out.
    """
    times_s = defaultdict[str, float](float)
    for user, before_s in unreported_s.items():
        times_s[user] = max(0.0, before_s - REFILL * max(0.0, passed_s))
    for user, more_s in ended:
        times_s[user] = min(times_s[user] + more_s, DEBT_MAX * start_limit_s)
    return {user: time_s for user, time_s in times_s.items() if time_s > 0}
