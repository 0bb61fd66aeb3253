"""A suite of 15 workloads of jobs that are sets of tasks, to compare policies on a small cluster without accelerators.

Five nodes of 8 cores and 16 GiB. A job is a set of tasks: each runs on anything that has its cores and memory, is never
preempted, and all come at once, of a user of their own. The names are a grain and a mix, such as `fine-memory`:

    coarse   4-16 tasks of 20-200 s          cpu      tasks need 2-4 cores and 0.25-1 GiB
    fine     20-80 tasks of 0.5-6 s          memory   1 core and 2-6 GiB
    mixed    a quarter of the jobs coarse,   both     each job is one or the other, by a coin
             the others fine                 batch    the same, all at time 0
                                             bursty   the same, in bursts, with sizes of a heavy tail

The resource that is asked for most is offered a load drawn from 0.85-0.95; arrivals are those of a Poisson process.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from gavel.errors import InvalidRequest, did_you_mean
from gavel.types import Cluster, JobSpec, Node, Worker
from workloads.traces.job import TraceJob

GIB = 2**30
NODES, CORES, MEMORY_BYTES = 5, 8, 16 * GIB  # of each node
TYPE, KIND = "cpu", "task"
STEPS_PER_S = 100.0  # of a task, so that it may last a part of a second
RATES: Mapping[str, float] = MappingProxyType({TYPE: STEPS_PER_S})
LOAD = (0.85, 0.95)
BURST_JOBS, BURST_S = 6, 10.0  # jobs of a burst in the mean, and the time within which they come
TAIL = 1.1  # the exponent of the sizes of a heavy tail: within their range, nearly all of the work is in few jobs


@dataclass(frozen=True, slots=True)
class Grain:
    """How many tasks a job has, and how long they take in seconds: each from least to most."""

    tasks: tuple[int, int]
    task_s: tuple[float, float]


GRAINS = MappingProxyType({"coarse": Grain((4, 16), (20.0, 200.0)), "fine": Grain((20, 80), (0.5, 6.0))})
COARSE_PART = 0.25  # of the jobs of `mixed`
MIXES = ("cpu", "memory", "both", "batch", "bursty")
WORKLOADS = tuple(f"{grain}-{mix}" for grain, mix in product((*GRAINS, "mixed"), MIXES))
"""The names of the workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """One job of the suite: the cores and memory of each of its tasks, and how long each of them takes."""

    cpu_cores: int
    memory_bytes: int
    durations_s: tuple[float, ...]

    def part_of_cluster_s(self) -> tuple[float, float]:
        """Return for how long it would hold all cores, and all memory, of the cluster."""
        together_s = sum(self.durations_s)
        cores, memory = self.cpu_cores / (NODES * CORES), self.memory_bytes / (NODES * MEMORY_BYTES)
        return cores * together_s, memory * together_s

    def alone_s(self) -> float:
        """Return a bound that its end has on an empty cluster: its longest task, and what fills the cluster."""
        return float(max(*self.durations_s, *self.part_of_cluster_s()))


def cluster() -> Cluster:
    """Return the suite's cluster. Each core is a worker, so that a task holds one worker, its cores and its memory."""
    names = [f"node-{index}" for index in range(NODES)]
    nodes = tuple(Node(name=name, cpu_cores=CORES, memory_bytes=MEMORY_BYTES) for name in names)
    workers = (Worker(id=f"{name}-{core}", node=name, accelerator_type=TYPE) for name in names for core in range(CORES))
    return Cluster(nodes=nodes, workers=tuple(workers))


def suite(workload: str, *, jobs: int, seed: int) -> Iterator[TraceJob]:
    """Yield the tasks of `jobs` jobs, in order of arrival, alike for one seed. Raise InvalidRequest for a name."""
    for index, (at_s, tasks) in enumerate(task_sets(workload, jobs=jobs, seed=seed)):
        for place, duration_s in enumerate(tasks.durations_s):
            yield TraceJob(submitted_at_s=at_s, spec=_spec(index, place, tasks, duration_s), id=f"{index}-{place}")


def task_sets(workload: str, *, jobs: int, seed: int) -> list[tuple[float, TaskSet]]:
    """Return `jobs` jobs, each with its arrival in seconds, in order. Raise InvalidRequest for an unknown name."""
    if workload not in WORKLOADS:
        choices = f"choose one of {', '.join(WORKLOADS)}{did_you_mean(workload, WORKLOADS)}"
        raise InvalidRequest("workload", f"there is no {workload!r}; {choices}")
    if jobs < 1:
        raise InvalidRequest("jobs", f"is {jobs}; give at least 1")
    grain, mix = workload.split("-")
    draw = random.Random(f"{workload} {seed}")  # noqa: S311 - not for secrets
    sets = [_task_set(_grain(grain, draw), mix, draw) for _ in range(jobs)]
    return list(zip(_arrivals_s(sets, mix, draw), sets, strict=True))


def _grain(name: str, draw: random.Random) -> Grain:
    if name == "mixed":
        name = "coarse" if draw.random() < COARSE_PART else "fine"
    return GRAINS[name]


def _task_set(grain: Grain, mix: str, draw: random.Random) -> TaskSet:
    is_cpu_heavy = mix == "cpu" or (mix != "memory" and draw.random() < 0.5)
    quarters = draw.randint(1, 4) if is_cpu_heavy else draw.randint(8, 24)
    cpu_cores = draw.randint(2, 4) if is_cpu_heavy else 1
    least_s, most_s = grain.task_s
    if mix == "bursty":
        count, typical_s = round(_heavy_tailed(grain.tasks, draw)), _heavy_tailed(grain.task_s, draw)
    else:
        count, typical_s = draw.randint(*grain.tasks), draw.uniform(least_s, most_s)
    around = (min(most_s, max(least_s, typical_s * draw.uniform(0.8, 1.2))) for _ in range(count))
    durations_s = tuple(round(each * STEPS_PER_S) / STEPS_PER_S for each in around)
    return TaskSet(cpu_cores=cpu_cores, memory_bytes=quarters * GIB // 4, durations_s=durations_s)


def _heavy_tailed(within: tuple[float, float], draw: random.Random) -> float:
    """A number of a bounded Pareto distribution."""
    least, most = within
    return float(least * (1 - draw.random() * (1 - (least / most) ** TAIL)) ** (-1 / TAIL))


def _arrivals_s(sets: list[TaskSet], mix: str, draw: random.Random) -> list[float]:
    """The arrivals, ascending from 0: instants of a Poisson process, the last of which gives the drawn load."""
    load = draw.uniform(*LOAD)
    if mix == "batch" or len(sets) == 1:
        return [0.0] * len(sets)
    within_s = offered_s(sets) / load
    at_s = sorted(_bursts_s(len(sets), within_s, draw) if mix == "bursty" else [draw.random() for _ in sets])
    return [(each - at_s[0]) / (at_s[-1] - at_s[0]) * within_s for each in at_s]


def _bursts_s(jobs: int, within_s: float, draw: random.Random) -> list[float]:
    bursts_s = [draw.uniform(0.0, within_s) for _ in range(max(1, jobs // BURST_JOBS))]
    return [draw.choice(bursts_s) + draw.uniform(0.0, BURST_S) for _ in range(jobs)]


def offered_s(sets: list[TaskSet]) -> float:
    """Return for how long the jobs would hold all of the resource that they ask for most, in seconds."""
    cores_s, memory_s = zip(*(each.part_of_cluster_s() for each in sets), strict=True)
    return float(max(sum(cores_s), sum(memory_s)))


def _spec(index: int, place: int, tasks: TaskSet, duration_s: float) -> JobSpec:
    return JobSpec(
        kind=KIND,
        name=f"set-{index}-task-{place}",
        user=f"set-{index}",
        tier="default",
        argv=(),
        total_steps=round(duration_s * STEPS_PER_S),
        cpu_cores=tasks.cpu_cores,
        memory_bytes=tasks.memory_bytes,
        preemptible=False,
        throughput_steps_per_s=RATES,
    )
