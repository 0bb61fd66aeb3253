"""A fixed region for each job, chosen with the whole trace known: a local search over a fluid model of the regions.

In the model the jobs of a region share its workers equally at every instant. That says nothing about rounds and whole
gangs, so what the search finds is then simulated as the others are.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.mechanism.planning.regions import equal_share
from gavel.simulator.setup import cluster_of
from gavel.types import FloatArray, IntArray, plain_type, region_of_type
from workloads.traces.job import TraceJob

Placement = tuple[int, ...]
"""The index of the region of each job."""
Rates = Mapping[tuple[str, int, str], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Region:
    """What n jobs would do in one region with k types, (n, k), and when each could begin there, (n,)."""

    steps_per_s: FloatArray
    workers: IntArray  # (k,)
    begins_s: FloatArray


class Hindsight:
    """The fluid model of a whole trace."""

    def __init__(
        self, jobs: Sequence[TraceJob], cluster: str, regions: Sequence[str], rates: Rates, gbit_s: float
    ) -> None:
        capacity = cluster_of(cluster).capacity_workers()
        self._submitted_s = np.array([job.submitted_at_s for job in jobs])
        self._steps = np.array([job.total_steps for job in jobs], dtype=np.float64)
        self._size = np.array([job.spec.scale_factor for job in jobs], dtype=np.float64)
        self._home = tuple(regions.index(job.spec.data_region) for job in jobs)
        copy_s = np.array([job.spec.data_bytes * 8e-9 / gbit_s for job in jobs])
        self._regions = []
        for place, region in enumerate(regions):
            types = [name for name in capacity if region_of_type(name) == region]
            own = [[_rate(job, name, capacity[name], rates) for name in types] for job in jobs]
            moved_s = np.where(np.array(self._home) == place, 0.0, copy_s)
            workers = np.array([capacity[name] for name in types], dtype=np.int64)
            begins_s = self._submitted_s + moved_s
            self._regions.append(_Region(steps_per_s=np.array(own), workers=workers, begins_s=begins_s))

    def searched(self, tries: int) -> Placement:
        """Return the best placement that a local search finds: it moves one job, or exchanges two, where that helps."""
        draw, place = random.Random(0), list(self._first())
        cost = [self._total_s(place, region) for region in range(len(self._regions))]
        for _ in range(tries):
            job, other = draw.randrange(len(place)), draw.randrange(len(place))
            after = list(place)
            is_exchange = draw.random() < 0.3
            after[job] = place[other] if is_exchange else draw.randrange(len(cost))
            after[other] = place[job] if is_exchange else after[other]
            touched = {region for at in (job, other) for region in (place[at], after[at]) if place[at] != after[at]}
            new = {region: self._total_s(after, region) for region in touched}
            if touched and sum(new.values()) < sum(cost[region] for region in touched):
                place = after
                cost = [new.get(region, each) for region, each in enumerate(cost)]
        return tuple(place)

    def _first(self) -> Placement:
        """Where the data of each job are, or where it can run at all."""
        can = np.array([(region.steps_per_s > 0).any(axis=1) for region in self._regions])
        return tuple(home if can[home, job] else int(can[:, job].argmax()) for job, home in enumerate(self._home))

    def _total_s(self, place: Sequence[int], region: int) -> float:
        """The sum of the times to completion of the jobs in a region; +inf if one cannot run there."""
        own, rows = self._regions[region], np.flatnonzero(np.array(place) == region)
        if not (own.steps_per_s[rows] > 0).any(axis=1).all():
            return np.inf
        rows = rows[np.argsort(own.begins_s[rows], kind="stable")]
        left, begins_s = self._steps.copy(), own.begins_s
        active: IntArray = np.zeros(0, dtype=np.int64)
        now_s, coming, ended_s = 0.0, 0, 0.0
        while coming < len(rows) or active.size:
            next_s = begins_s[rows[coming]] if coming < len(rows) else np.inf
            if not active.size:
                active, now_s, coming = rows[coming : coming + 1], next_s, coming + 1
                continue
            wanted = np.full(len(active), self._size[active].sum())
            rate = equal_share(own.steps_per_s[active], own.workers, wanted)
            ends_s = now_s + left[active] / rate
            until_s = min(float(ends_s.min()), next_s)
            left[active] -= rate * (until_s - now_s)
            done = ends_s <= until_s
            ended_s += float((until_s - self._submitted_s[active[done]]).sum())
            active, now_s = active[~done], until_s
            if until_s == next_s:
                active, coming = np.append(active, rows[coming]), coming + 1
        return ended_s


def _rate(job: TraceJob, name: str, workers: int, rates: Rates) -> float:
    size = job.spec.scale_factor
    return rates.get((job.spec.kind, size, plain_type(name)), 0.0) if size <= workers else 0.0
