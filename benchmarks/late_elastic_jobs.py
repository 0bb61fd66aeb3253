"""How far jobs can fall behind their isolated share where some are elastic: streams made worse step by step, in rounds.

A stream is a few jobs, elastic and rigid, on two small types. It runs through the whole service on a manual clock:
sizes are chosen, the policy shares out time, rounds follow it, and each start costs something. A search changes one job
at a time (when it comes, its length, kind and priority) and keeps what brings some job nearer to its bound:
docs/elastic.md.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from benchmarks.table import Row, run
from gavel.config import Settings
from gavel.finish_time import LATE_RHO
from gavel.policies import measures
from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.outcome import Scenario
from gavel.simulator.setup import cluster_of
from gavel.types import JobSpec
from workloads.traces.job import TraceJob

ROUND_S, START_S = 60.0, 5.0
ROUNDS = 120
CLUSTER = "fast:4,slow:4"
POLICY = "rank_weighted_speed"
SLACK_ROUNDS = 12.0  # that rounds add to the bound: what they lag behind their fractions, and a gang at a time
STREAMS, QUICK_STREAMS = 150, 12


class Kind(NamedTuple):
    """Steps per second of one worker on each type, the power with which the speed grows, and the sizes."""

    fast: float
    slow: float
    power: float
    sizes: tuple[int, ...]


KINDS = (
    Kind(2.0, 1.0, 0.9, (1, 2, 4)),
    Kind(2.0, 1.0, 0.5, (1, 2, 4)),
    Kind(4.0, 0.0, 0.7, (1, 2, 4)),
    Kind(1.0, 1.0, 0.8, (2, 4)),
    Kind(2.0, 1.0, 1.0, (1,)),
    Kind(0.0, 1.0, 1.0, (1,)),
    Kind(2.0, 1.0, 0.8, (2,)),
)
PRIORITIES = (0, 5)  # each step doubles the weight


class Arrival(NamedTuple):
    """A job: the round in which it comes, its length in rounds at its slowest speed, its kind and its priority."""

    round_index: int
    rounds: int
    kind: int
    priority: int


Stream = tuple[Arrival, ...]


class Furthest(NamedTuple):
    """The largest deficit of a job at any round, in rounds, and as a part of its bound."""

    rounds: float
    part: float


def rows(quick: bool) -> Iterator[Row]:
    part, stream = worst(QUICK_STREAMS if quick else STREAMS, seed=0)
    yield Row(f"{POLICY}, furthest behind of {len(stream)} jobs, of the bound", 100 * part, "%", 100.0)


def worst(streams: int, seed: int) -> tuple[float, Stream]:
    """Return the largest part of its bound by which a job was behind in so many streams, and that stream."""
    draw = np.random.default_rng(seed)
    best, most = drawn(draw), -np.inf
    for count in range(streams):
        is_fresh = count % 2 > 0 and count < streams / 4
        stream = drawn(draw) if is_fresh else _changed(best, draw)
        part = furthest(stream).part
        if part >= most:
            best, most = stream, part
    return float(most), best


def furthest(stream: Stream, policy: str = POLICY, rounds: int = ROUNDS) -> Furthest:
    """Return how far behind its isolated share a job is at most in so many rounds.

    The bound is (rho - 1) max T + SLACK_ROUNDS.
    """
    longest_s: dict[str, float] = {}
    most = Furthest(0.0, 0.0)
    world = DrivenWorld(_jobs(stream), _scenario(policy), InlineRunner())
    for count, record in enumerate(world.rounds()):
        problem = record.problem
        alone_s = measures.isolated_finish_s(problem, measures.even_share(problem))
        behind_s = problem.age_s - problem.isolated_time_s
        for job_id, deficit_s, whole_s in zip(problem.job_ids, behind_s.tolist(), alone_s.tolist(), strict=True):
            longest_s[job_id] = max(longest_s.get(job_id, 0.0), whole_s)
            bound_s = (LATE_RHO - 1) * longest_s[job_id] + SLACK_ROUNDS * ROUND_S
            most = Furthest(max(most.rounds, deficit_s / ROUND_S), max(most.part, deficit_s / bound_s))
        if count >= rounds:
            break
    return most


@lru_cache(maxsize=4)
def _scenario(policy: str) -> Scenario:
    speeds = {
        (f"kind-{index}", size, name): rate * size**kind.power
        for index, kind in enumerate(KINDS)
        for size in kind.sizes
        for name, rate in (("fast", kind.fast), ("slow", kind.slow))
        if rate > 0
    }
    return Scenario(
        cluster=cluster_of(CLUSTER),
        throughput=speeds,
        settings=Settings(policy=policy, round_duration_s=ROUND_S),
        is_elastic=True,
        switch_cost_s={"": START_S},
    )


def _jobs(stream: Stream) -> list[TraceJob]:
    return sorted((_job(each) for each in stream), key=lambda job: job.submitted_at_s)


def _job(arrival: Arrival) -> TraceJob:
    round_index, rounds, number, priority = arrival
    kind, speeds = KINDS[number], _scenario(POLICY).throughput
    slowest = min(rate for (name, _, _), rate in speeds.items() if name == f"kind-{number}")
    steps = max(1, int(rounds * ROUND_S * slowest))
    is_elastic = len(kind.sizes) > 1
    spec = JobSpec(
        name="job",
        user="ann",
        tier="default",
        priority=priority,
        argv=(),
        kind=f"kind-{number}",
        total_steps=steps,
        scale_factor=kind.sizes[0],
        sizes=kind.sizes if is_elastic else (),
        global_batch=64 if is_elastic else 0,
    )
    of_size = {
        size: {name: rate for (each, of, name), rate in speeds.items() if (each, of) == (f"kind-{number}", size)}
        for size in kind.sizes
    }
    return TraceJob(submitted_at_s=round_index * ROUND_S, spec=spec, steps_per_s=of_size if is_elastic else {})


def drawn(draw: np.random.Generator) -> Stream:
    """Return a stream of up to 14 jobs."""
    return tuple(_arrival(draw) for _ in range(draw.integers(3, 15)))


def _arrival(draw: np.random.Generator) -> Arrival:
    round_index, rounds, kind, priority = draw.integers([0, 1, 0, 0], [40, 120, len(KINDS), 2])
    return Arrival(int(round_index), int(rounds), int(kind), PRIORITIES[priority])


def _changed(stream: Stream, draw: np.random.Generator) -> Stream:
    """Return the stream with one job changed, added or left out."""
    row, other = int(draw.integers(len(stream))), _arrival(draw)
    mutated = stream[row]._replace(**{name: getattr(other, name) for name in Arrival._fields if draw.random() < 0.4})
    added = (other, mutated) if len(stream) < 16 and draw.random() < 0.3 else (mutated,)
    kept = () if len(stream) > 3 and draw.random() < 0.1 else added
    return (*stream[:row], *kept, *stream[row + 1 :])


if __name__ == "__main__":
    run("Late elastic jobs", rows)
