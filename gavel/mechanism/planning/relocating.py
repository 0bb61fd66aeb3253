"""Keeps each job in a region: reads the tick for `regions.choose_homes`, and carries its answer out."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.config import RegionsSection
from gavel.mechanism.cluster.configured import regions_of
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.planning.lengths import steps_left
from gavel.mechanism.planning.problem import ClusterColumns, as_known
from gavel.mechanism.planning.regions import (
    BITS_PER_GB,
    NO_REGION,
    HomeChoice,
    Homes,
    MoveTerms,
    RegionProblem,
    choose_homes,
    expected_gbit_s,
)
from gavel.mechanism.tick import Tick
from gavel.ports import JobEvent, ThroughputEstimator
from gavel.types import Cluster, FloatArray, Job, JobId, JobState, Lease, Reason, Residence, in_region, region_of_type
from gavel.types.copying import changed
from gavel.types.regions import NOWHERE

BYTES_PER_GB = 1e9
MOVED = "job.moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What has to be copied for a move of one job to one region, how long that takes, and what it costs."""

    gigabytes: float = 0.0
    seconds: float = 0.0
    usd: float = 0.0


class Relocation:
    """Gives new jobs a home as they come, and looks every `interval_s` whether others should move."""

    def __init__(self, settings: RegionsSection | None, choose: HomeChoice = choose_homes) -> None:
        self._settings = settings
        self._choose = choose
        self._looked_at_s = -math.inf  # a restart looks once more, no harm
        self._feasibility = Feasibility(Cluster())
        self._homeless: frozenset[JobId] = frozenset()  # whom the last look at these workers found no place for
        self._closed_since_s: dict[str, float] = {}  # homes of which no node can be used; a restart waits once more

    def settle(self, tick: Tick, estimator: ThroughputEstimator) -> None:
        """Set the homes of jobs that a round may serve. A job that moves is held until it has arrived."""
        if self._settings is None:
            return
        for job in [*tick.index.conditional.values()]:
            if (after := arriving(job, tick.now_s)) is not job:
                tick.put(after)
        jobs = [job for job in tick.index.serving(tick.held, tick.now_s) if job.spec.replica is None]
        # An instant before the last look is as good as one long after it: the clock was set back.
        is_due = not self._looked_at_s <= tick.now_s < self._looked_at_s + self._settings.interval_s
        given_up = self._given_up(tick, jobs, self._settings.leave_after_s)
        homeless, feasibility = self._looked_for(jobs, tick.usable)
        if not jobs or not (is_due or homeless):
            return
        self._looked_at_s = tick.now_s if is_due else self._looked_at_s
        look = _Look(jobs, tick, feasibility, estimator, self._settings, given_up, is_due=is_due)
        homes = self._choose(look.problem, MoveTerms.of(self._settings))
        for job, event in look.changes(homes):
            tick.put(job, *event)
            if job.residence.arrives_at_s > tick.now_s:
                tick.held = {**tick.held, job.id: (Reason.MOVING, job.residence.why)}

    def _given_up(self, tick: Tick, jobs: Sequence[Job], leave_after_s: float) -> tuple[str, ...]:
        """Return the homes of jobs of which no node could be used for so long that the jobs may leave them, sorted."""
        closed = {job.residence.region for job in jobs}.difference(regions_of(tick.usable), {NOWHERE})
        since_s = {each: min(self._closed_since_s.get(each, tick.now_s), tick.now_s) for each in closed}
        self._closed_since_s = since_s
        return tuple(sorted(each for each in closed if tick.now_s - since_s[each] >= leave_after_s))

    def _looked_for(self, jobs: Sequence[Job], usable: Cluster) -> tuple[bool, Feasibility]:
        """Whether there are jobs without a home that were not looked at on these workers; and where jobs can run."""
        homeless = frozenset(job.id for job in jobs if not job.residence.region)
        is_same = self._feasibility.cluster == usable
        is_news = not homeless <= (self._homeless if is_same else frozenset())
        self._homeless = homeless
        self._feasibility = self._feasibility if is_same else Feasibility(usable)
        return is_news, self._feasibility


def arriving(job: Job, now_s: float) -> Job:
    """Return the job, which waits no longer from now than its copy takes: the clock may have been set back."""
    own, until_s = job.residence, now_s + job.residence.copy_s
    if job.state is not JobState.QUEUED or own.arrives_at_s <= until_s:
        return job
    return changed(job, residence=replace(own, arrives_at_s=until_s))


class _Look:
    """One look at the jobs: the problem that they make, and what an answer to it changes."""

    def __init__(
        self,
        jobs: Sequence[Job],
        tick: Tick,
        feasibility: Feasibility,
        estimator: ThroughputEstimator,
        settings: RegionsSection,
        given_up: tuple[str, ...] = (),
        *,
        is_due: bool,
    ) -> None:
        """`given_up`: regions without a node that can be used, which jobs may leave."""
        self._tick, self._settings = tick, settings
        self._regions, self._given_up = (*regions_of(feasibility.cluster), *given_up), given_up
        self._there = regions_of(tick.seen.cluster)
        waiting = [job for job in tick.index.conditional.values() if job.residence.arrives_at_s > tick.now_s]
        self._jobs = [*jobs, *waiting]
        nodes = {node.name: node.region for node in tick.seen.cluster.nodes}
        self._region_of = {worker.id: nodes[worker.node] for worker in tick.seen.cluster.workers}
        self._leases = _leases(tick)
        self._copied = {(each.origin, each.target): each for each in tick.seen.link_copies}
        self._origin = [self._origin_of(job) for job in self._jobs]
        self._may = [self._may_move(job, origin, is_due) for job, origin in zip(jobs, self._origin, strict=False)]
        self._may += [False] * len(waiting)
        self.problem = self._problem(feasibility, estimator)

    def _origin_of(self, job: Job) -> str:
        """The region where what the job needs is; "": nothing has to be copied, or nobody can reach it."""
        region = job.residence.region or self._running_in(job) or job.spec.data_region
        if region in self._given_up and not self._can_read_data(job, region):
            return ""
        return region if region in self._regions else ""

    def _can_read_data(self, job: Job, region: str) -> bool:
        """Whether the data of a job can be copied out of a region of which no node can be used, or are elsewhere."""
        if not job.spec.data_bytes or region in self._there:
            return True
        elsewhere = {*job.residence.copies, job.spec.data_region} - {region}
        return not elsewhere.isdisjoint(self._regions)

    def _running_in(self, job: Job) -> str:
        """The region of a gang that was there before jobs had homes."""
        lease = self._leases.get(job.id)
        return self._region_of.get(lease.worker_ids[0], "") if lease else ""

    def _may_move(self, job: Job, origin: str, is_due: bool) -> bool:
        is_new = not job.residence.region
        if is_new and not origin:
            return not job.spec.data_region
        is_stoppable = job.spec.preemptible or job.state is JobState.QUEUED
        return bool(origin) and is_stoppable and (is_due or is_new)

    def _problem(self, feasibility: Feasibility, estimator: ThroughputEstimator) -> RegionProblem:
        columns = ClusterColumns.of(feasibility.cluster)
        free = [changed(job, spec=replace(job.spec, home="")) for job in self._jobs]
        seen = [as_known(job, estimator) for job in ruled_out(free, self._tick.infeasible)]
        specs, place = [job.spec for job in seen], {name: index for index, name in enumerate(self._regions)}
        types = columns.accelerator_types
        steps_per_s = np.where(feasibility.mask(specs), estimator.matrix(specs, types).steps_per_s, 0.0)
        total = [math.nan if job.total_steps is None else job.total_steps for job in seen]
        left = steps_left(
            np.array(total, dtype=np.float64),
            np.array([job.steps_reported for job in seen], dtype=np.float64),
            kinds=[spec.kind for spec in specs],
            steps_per_s=steps_per_s,
        )
        copies = [[self._copy(row, region) for region in self._regions] for row in range(len(seen))]
        return RegionProblem(
            region_of_type=np.array([place[region_of_type(name)] for name in types], dtype=np.int64),
            capacity_workers=columns.capacity_workers,
            price_usd_per_hour=columns.price_usd_per_hour,
            steps_per_s=steps_per_s,
            scale_factor=np.array([spec.scale_factor for spec in specs], dtype=np.int64),
            steps_left=np.maximum(1.0, left),
            home=np.array([place.get(origin, NO_REGION) for origin in self._origin], dtype=np.int64),
            may_move=np.array(self._may, dtype=np.bool_),
            copy_s=_array([[each.seconds for each in row] for row in copies], len(self._regions)),
            egress_usd=_array([[each.usd for each in row] for row in copies], len(self._regions)),
        )

    def _copy(self, row: int, region: str) -> Copy:
        """What a move of a job to a region copies: its checkpoint, and its data where it has no copy of them."""
        job, origin = self._jobs[row], self._origin[row]
        if not origin or origin == region:
            return Copy()
        has_data = region in (*job.residence.copies, job.spec.data_region)
        size = (job.checkpoint_bytes or 0 if job.checkpoint else 0) + (0 if has_data else job.spec.data_bytes)
        gigabytes, link = size / BYTES_PER_GB, self._settings.link(origin, region)
        gbit_s = expected_gbit_s(link.gbit_s, self._copied.get((origin, region)))
        return Copy(gigabytes=gigabytes, seconds=BITS_PER_GB * gigabytes / gbit_s, usd=gigabytes * link.usd_per_gb)

    def changes(self, homes: Homes) -> Iterator[tuple[Job, tuple[JobEvent, ...]]]:
        """Yield the jobs whose home, or the reason for it, is another one, each with what its history says."""
        yield from self._unreachable()
        is_new = [
            not job.residence.region and bool(origin) for job, origin in zip(self._jobs, self._origin, strict=True)
        ]
        for row in np.flatnonzero(np.array(self._may, dtype=np.bool_) | np.array(is_new, dtype=np.bool_)).tolist():
            job, place = self._jobs[row], int(homes.region[row])
            region = "" if place == NO_REGION else self._regions[place]
            if region and region != self._origin[row] and self._origin[row]:
                yield self._moved(row, region, homes)
            elif region:
                why = self._why_here(row, region, homes)
                residence = replace(job.residence, region=region, copies=_with(job.residence.copies, region), why=why)
                if residence != job.residence:
                    yield changed(job, residence=residence, spec=in_region(job.spec, region)), ()

    def _unreachable(self) -> Iterator[tuple[Job, tuple[JobEvent, ...]]]:
        """New jobs whose data are in a region without a usable node: they wait there."""
        for job in self._jobs:
            place = job.spec.data_region
            if place and not job.residence.region and place not in self._regions:
                why = f"Its data are in {place}, of which no node can be used now."
                yield changed(job, residence=Residence(region=place, why=why), spec=in_region(job.spec, place)), ()

    def _moved(self, row: int, region: str, homes: Homes) -> tuple[Job, tuple[JobEvent, ...]]:
        job, origin, copy = self._jobs[row], self._origin[row], self._copy(row, region)
        lease = self._leases.get(job.id)
        starts_s = max(self._tick.now_s, lease.expires_at_s if lease else 0.0)
        before = job.residence
        residence = Residence(
            region=region,
            copies=_with(_with(before.copies, origin), region),
            moved_from=origin,
            arrives_at_s=starts_s + copy.seconds,
            copy_s=copy.seconds,
            moves=before.moves + 1,
            egress_bytes=before.egress_bytes + round(copy.gigabytes * BYTES_PER_GB),
            egress_usd=before.egress_usd + copy.usd,
            why=self._why_moved(row, region, homes, copy),
        )
        line = JobEvent(job_id=job.id, at_s=self._tick.now_s, kind=MOVED, message=residence.why)
        return changed(job, residence=residence, spec=in_region(job.spec, region)), (line,)

    def _why_moved(self, row: int, region: str, homes: Homes, copy: Copy) -> str:
        origin = self._origin[row]
        here, there = (float(homes.steps_per_s[row, self._regions.index(name)]) for name in (origin, region))
        gain = f"{there / here:.2g} times as fast as" if here > 0 else "running, which it cannot do"
        paid = f" for {copy.usd:.2f} USD" if copy.usd else ""
        return (
            f"It moves from {origin} to {region}, where it is expected to be {gain} there: {copy.gigabytes:.3g} GB are"
            f" copied{paid}, in {copy.seconds:.0f} s."
        )

    def _why_here(self, row: int, region: str, homes: Homes) -> str:
        if not self._jobs[row].residence.region and not self._origin[row]:
            return f"It is in {region}, where it is expected to end soonest."
        rates, place = homes.steps_per_s[row].copy(), self._regions.index(region)
        here, rates[place] = float(rates[place]), 0.0
        best = int(rates.argmax())
        if rates[best] <= here:
            return f"It stays in {region}: no other region that it may be in would do more of it."
        other = self._regions[best]
        copy = self._copy(row, other)
        if not homes.is_faster[row, best]:
            gain = f"{other} would not do enough more of it to make up for copying {copy.gigabytes:.3g} GB"
        elif not homes.is_worth[row, best]:
            gain = f"{other} would do more of it, but not worth the {copy.usd:.2f} USD that the copy costs"
        else:
            gain = f"{other} would do more of it, but other jobs move there first"
        return f"It stays in {region}: {gain}."


def _leases(tick: Tick) -> dict[JobId, Lease]:
    """The lease of each gang that is there, the one that ends last."""
    leases: dict[JobId, Lease] = {}
    for plan in tick.round_plans:
        for lease in plan.leases:
            job = tick.index.leased.get(lease.job_id)
            if job is not None and job.generation == lease.generation:
                leases[job.id] = max(lease, leases.get(job.id, lease), key=lambda each: each.expires_at_s)
    return leases


def _with(regions: tuple[str, ...], region: str) -> tuple[str, ...]:
    return regions if region in regions else (*regions, region)


def _array(rows: Sequence[Sequence[float]], columns: int) -> FloatArray:
    return np.array(rows, dtype=np.float64).reshape(len(rows), columns)
