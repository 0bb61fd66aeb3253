"""What the autopilot is measured on: workloads of the suite alone and as phases, and streams of real clusters."""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from gavel.autopilot import goals
from gavel.config import Settings
from gavel.simulator.outcome import Scenario
from gavel.simulator.setup import Workload, cluster_of, misstated
from workloads.traces import suite
from workloads.traces.job import TraceJob
from workloads.traces.throughputs import ScaledRates, read_throughputs

ROUND_S = {"coarse": 10.0, "fine": 1.0, "mixed": 2.0, "phases": 5.0}
EPOCHS = 6  # of a workload of the suite; as many of each phase
POSTERS = (
    "fifo",
    "dominant_resource_fairness?among=users",
    "fair_by_cores?among=users",
    "fair_by_memory?among=users",
)
WIDER = (*POSTERS, "least_remaining_work?work_of=user", "least_attained_service?queues=continuous")
OF_GANGS = (
    "hierarchical",
    "fifo",
    "shortest_job_first",
    "least_remaining_work",
    "least_attained_service",
    "rank_weighted_speed?length=attained_service",
    "max_total_relative_speed?ageing=attained_service",
)
PHILLY_CLUSTER = "v100:24:8,p100:24:8,k80:16:8"
PUBLISHED_CLUSTER = "v100:36,p100:36,k80:36"
ROUND_OF_GANGS_S, EPOCH_OF_GANGS_S = 360.0, 8 * 3600.0
DRAWN = 2  # another seed of the suite, on which the table by label is made


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs whose stated lengths are off by exp(`sigma` z), z standard normal. The first of `candidates` is the start.

    `name`: a workload of the suite, `phases`, or a stream; `jobs`: of the suite, of each phase, of the stream.
    """

    name: str
    jobs: int
    sigma: float
    candidates: tuple[str, ...]
    seed: int = 0

    @property
    def is_of_suite(self) -> bool:
        """Return True if jobs are sets of tasks."""
        return self.name not in STREAMS

    @property
    def grain(self) -> str:
        """Return the grain of the suite's tasks."""
        return self.name.partition("-")[0]

    def trace(self) -> list[TraceJob]:
        """Return the jobs, in order of arrival."""
        jobs = self._tasks() if self.is_of_suite else STREAMS[self.name].read(self.jobs)
        return list(misstated(jobs, self.sigma, self.seed))

    def _tasks(self) -> list[TraceJob]:
        if self.name == "phases":
            return [job for job, _ in phases(self.jobs, self.seed)]
        return list(suite.suite(self.name, jobs=self.jobs, seed=self.seed))

    def scenario(self) -> Scenario:
        """Return cluster and rules."""
        return suite_scenario(ROUND_S[self.grain]) if self.is_of_suite else STREAMS[self.name].scenario()

    def epoch_s(self) -> float:
        """Return the time from one decision to the next: of the suite, a part of what full load would take."""
        if not self.is_of_suite:
            return EPOCH_OF_GANGS_S
        names = phase_names(self.seed) if self.name == "phases" else (self.name,)
        sets = [tasks for name in names for _, tasks in suite.task_sets(name, jobs=self.jobs, seed=self.seed)]
        return max(ROUND_S[self.grain], suite.offered_s(sets) / len(names) / EPOCHS)

    def goal(self, measure: str) -> goals.Goal:
        """Return the goal of this measure; a set of tasks counts as one job."""
        return goals.read(f"{measure},{goals.PER_USER}" if self.is_of_suite else measure)


def suite_scenario(round_s: float) -> Scenario:
    """Return the suite's cluster with rounds of this length."""
    settings = Settings(policy=POSTERS[0], round_duration_s=round_s, planning_lead_fraction=0.0)  # type: ignore[call-arg]
    throughput = {(suite.KIND, 1, suite.TYPE): suite.STEPS_PER_S}
    return Scenario(cluster=suite.cluster(), throughput=throughput, settings=settings)


def phase_names(seed: int) -> tuple[str, ...]:
    """Return the workloads of the phases, in order: those of the suite, shuffled."""
    names = list(suite.WORKLOADS)
    random.Random(f"phases {seed}").shuffle(names)
    return tuple(names)


def phases(jobs: int, seed: int) -> list[tuple[TraceJob, str]]:
    """Return the workloads of the suite one after the other, each job with its workload.

    Each begins when the one before would have been served at full load, so that its queue is carried over.
    """
    at_s, every = 0.0, list[tuple[TraceJob, str]]()
    for place, name in enumerate(phase_names(seed)):
        for job in suite.suite(name, jobs=jobs, seed=seed):
            spec = replace(job.spec, user=f"{place}-{job.spec.user}", name=f"{place}-{job.spec.name}")
            moved = replace(job, submitted_at_s=at_s + job.submitted_at_s, spec=spec, id=f"{place}-{job.id}")
            every.append((moved, name))
        at_s += suite.offered_s([tasks for _, tasks in suite.task_sets(name, jobs=jobs, seed=seed)])
    return sorted(every, key=lambda pair: pair[0].submitted_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Jobs of a file from the one at `first` on, only every so many-th, on a cluster."""

    file: str
    cluster: str
    first: int = 0
    every: int = 1

    def read(self, jobs: int) -> list[TraceJob]:
        """Return so many jobs, the first of which arrives at 0. Gangs larger than any type are left out."""
        workload = Workload(
            text=str(Path(_data(), self.file)),
            table=read_throughputs(_data() / "gavel" / "simulation_throughputs.json"),
            is_lenient=True,
            capacity_workers=cluster_of(self.cluster).capacity_workers(),
        )
        part = list(islice(workload.jobs(), self.first, self.first + jobs * self.every, self.every))
        return [replace(job, submitted_at_s=job.submitted_at_s - part[0].submitted_at_s) for job in part]

    def scenario(self) -> Scenario:
        """Return cluster, rates and the service's own rules, with the rounds that were published."""
        table = read_throughputs(_data() / "gavel" / "simulation_throughputs.json")
        settings = Settings(policy=OF_GANGS[0], round_duration_s=ROUND_OF_GANGS_S)  # type: ignore[call-arg]
        return Scenario(cluster=cluster_of(self.cluster), throughput=ScaledRates(table), settings=settings)


STREAMS: Mapping[str, Stream] = {
    "itp2021_cluster02": Stream(file="itp2021_cluster02.csv", cluster="v100:64:8,p100:64:8"),
    **{
        f"philly_busiest_2weeks from {first}": Stream(
            file="philly_busiest_2weeks.csv", cluster=PHILLY_CLUSTER, first=first, every=8
        )
        for first in (0, 8000, 16000)
    },
    "published 5.2/h": Stream(file="gavel/continuous_single_5.2_per_hour_seed0.trace", cluster=PUBLISHED_CLUSTER),
    "published 2.6/h": Stream(file="gavel/continuous_multiple_2.6_per_hour_seed0.trace", cluster=PUBLISHED_CLUSTER),
}


def has_streams() -> bool:
    """Return True if GAVEL_DATA names the folder of the streams."""
    return (_data() / "gavel" / "simulation_throughputs.json").is_file()


def _data() -> Path:
    return Path(os.environ.get("GAVEL_DATA", "/nowhere"))
