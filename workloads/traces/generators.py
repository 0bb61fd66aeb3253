"""Workloads drawn at random: the published distribution of Gavel (OSDI '20, section 7.1), and a bursty one of users.

Both yield jobs lazily, in order of arrival, and the same ones for the same seed.
"""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gavel.types import JobSpec
from gavel.types.elastic_kinds import elastic_kind
from workloads.traces.job import TraceJob
from workloads.traces.throughputs import ThroughputTable

KINDS = (
    *(f"ResNet-18 (batch size {size})" for size in (16, 32, 64, 128, 256)),
    *(f"ResNet-50 (batch size {size})" for size in (16, 32, 64, 128)),
    *(f"Transformer (batch size {size})" for size in (16, 32, 64, 128, 256)),
    *(f"LM (batch size {size})" for size in (5, 10, 20, 40, 80)),
    *(f"Recommendation (batch size {size})" for size in (512, 1024, 2048, 4096, 8192)),
    "A3C",
    "CycleGAN",
)
SIZES = (1, 2, 4, 8)
REFERENCE_TYPE = "v100"  # the type on which a job takes its drawn duration
USERS_MEAN_JOBS_PER_BURST = 8


def published(
    jobs: int, table: ThroughputTable, *, per_hour: float, seed: int, has_gangs: bool = False
) -> Iterator[TraceJob]:
    """Yield `jobs` jobs of the published distribution, with Poisson arrivals at `per_hour` (0: all at once).

    The streams of random numbers are those of the original generator, so that a seed gives the same trace as there.
    """
    of_jobs, of_arrivals = random.Random(seed + 2), random.Random(seed + 3)  # noqa: S311
    at_s = 0.0
    for index in range(jobs):
        if index and per_hour > 0:
            at_s += -math.log(1.0 - of_arrivals.random()) * 3600.0 / per_hour
        yield _published_job(index, at_s, table, of_jobs, has_gangs)


def _published_job(index: int, at_s: float, table: ThroughputTable, draw: random.Random, has_gangs: bool) -> TraceJob:
    size_drawn = draw.uniform(0, 1)
    drawn = 1 if size_drawn < 0.7 else 2 if size_drawn < 0.8 else 4 if size_drawn < 0.95 else 8
    size = drawn if has_gangs else 1
    is_short = draw.random() < 0.8
    duration_s = 60 * 10 ** (draw.uniform(1.5, 3) if is_short else draw.uniform(3, 4))
    while True:
        kind = draw.choice(KINDS)
        if (kind, size, REFERENCE_TYPE) in table.rates:
            break
    steps = duration_s * table.rates[kind, size, REFERENCE_TYPE]
    spec = JobSpec(
        kind=kind,
        name=f"job-{index + 1}",
        user="nobody",
        tier="default",
        argv=(),
        total_steps=max(1, math.ceil(steps - 1e-6)),
        scale_factor=size,
    )
    return TraceJob(submitted_at_s=at_s, spec=spec)


def elastic(jobs: Iterable[TraceJob], table: ThroughputTable) -> Iterator[TraceJob]:
    """Yield the jobs, elastic where the table has their global batch at several sizes: 64 samples on each of 4 workers
    are 256, as 128 on each of 2.

    A step of the table is that of one worker; a step of an elastic job is one of all workers, of its global batch.
    """
    for job in jobs:
        spec, (family, batch) = job.spec, _family_and_batch(job.spec.kind)
        whole = batch * spec.scale_factor
        by_size = {
            size: rates
            for size in SIZES
            if whole % size == 0 and (rates := _rates(table, f"{family} (batch size {whole // size})", size))
        }
        if batch and len(by_size) > 1:
            kind = elastic_kind(family, whole)
            steps = max(1, math.ceil(job.total_steps / spec.scale_factor - 1e-6))
            spec = replace(
                spec,
                kind=kind,
                total_steps=steps,
                scale_factor=min(by_size),
                sizes=tuple(by_size),
                global_batch=whole,
            )
            job = replace(job, spec=spec, steps_per_s=by_size)  # noqa: PLW2901
        yield job


def _family_and_batch(kind: str) -> tuple[str, int]:
    """Return the model and the samples of a worker in a step; 0: the kind does not say."""
    family, _, batch = kind.partition(" (batch size ")
    return family, int(batch.rstrip(")") or 0)


def _rates(table: ThroughputTable, kind: str, size: int) -> dict[str, float]:
    """Return how often a gang of this size does a step with all of its workers, by the types where it can run."""
    rates = {name: table.rates.get((kind, size, name), 0.0) / size for name in table.accelerator_types}
    return {name: rate for name, rate in rates.items() if rate > 0}


def bursty(jobs: int, table: ThroughputTable, *, per_hour: float, seed: int, users: int = 12) -> Iterator[TraceJob]:
    """Yield `jobs` jobs in bursts: a user, drawn by a Zipf law, submits a geometric number of one kind within minutes.

    Durations and gangs are as in the published distribution; `per_hour` is the mean rate of jobs over the whole trace.
    """
    draw = random.Random(seed)  # noqa: S311
    weights = [1 / rank for rank in range(1, users + 1)]
    at_s, sent = 0.0, 0
    while sent < jobs:
        (user,) = draw.choices(range(users), weights)
        size = 1
        while size < 10 * USERS_MEAN_JOBS_PER_BURST and draw.random() > 1 / USERS_MEAN_JOBS_PER_BURST:
            size += 1
        example = _published_job(sent, at_s, table, draw, True)
        within_s = at_s
        for _ in range(min(size, jobs - sent)):
            within_s += draw.expovariate(1 / 20.0)
            yield _of_user(example, sent, within_s, f"user-{user}", draw)
            sent += 1
        at_s = within_s + draw.expovariate(per_hour / 3600.0 / size) if per_hour > 0 else within_s


def _of_user(example: TraceJob, index: int, at_s: float, user: str, draw: random.Random) -> TraceJob:
    """Return a job like `example`, a little longer or shorter: the next run of a hyperparameter search."""
    spec = example.spec
    return TraceJob(
        submitted_at_s=at_s,
        spec=JobSpec(
            kind=spec.kind,
            name=f"job-{index + 1}",
            user=user,
            tier=spec.tier,
            argv=(),
            total_steps=max(1, round(example.total_steps * draw.uniform(0.8, 1.2))),
            scale_factor=spec.scale_factor,
        ),
    )
