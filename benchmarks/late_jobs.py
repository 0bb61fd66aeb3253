"""How far a job can fall behind its isolated share: streams made worse step by step, against the bounds of the docs.

A stream is a few jobs on two small types. It runs as the policy's fractions say, a second at a time, without rounds. A
search changes one job at a time (when it comes, its length, kind and user) and keeps what brings some job nearer to
its bound: docs/policies.md (`rank_weighted_speed`) and docs/tiers.md (`fast` within a user) state these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarks.table import Row, run
from gavel.finish_time import LATE_RHO
from gavel.mechanism.planning.problem import ClusterColumns, JobColumns, problem_of
from gavel.policies import measures, registry
from gavel.ports import Policy
from gavel.types import AllocationProblem, BoolArray, FloatArray, Tier

STEP_S = 1.0
SECONDS = 80
KINDS = ((2.0, 1.0), (1.0, 1.0), (9.0, 1.0), (0.0, 3.0))  # steps per second on two types
WORKERS = (2, 1)
STREAMS, QUICK_STREAMS = 150, 20
POLICIES = (("rank_weighted_speed", 1), ("hierarchical", 1), ("hierarchical", 3))


class Arrival(NamedTuple):
    """A job: the second in which it comes, its steps, its kind and its user."""

    at_s: int
    steps: int
    kind: int
    user: int


Stream = tuple[Arrival, ...]


def rows(quick: bool) -> Iterator[Row]:
    for name, users in POLICIES:
        part, stream = worst(registry.load(name), users, QUICK_STREAMS if quick else STREAMS, seed=0)
        of = f"{name}, {users} user{'s' if users > 1 else ''}"
        yield Row(f"{of}: furthest behind of {len(stream)} jobs, of the bound", 100 * part, "%", 100.0)


def worst(policy: Policy, users: int, streams: int, seed: int) -> tuple[float, Stream]:
    """Return the largest part of its bound by which a job was behind in so many streams, and that stream."""
    draw = np.random.default_rng(seed)
    best, most = _drawn(draw, users), -np.inf
    for count in range(streams):
        is_fresh = count % 2 > 0 and count < streams / 4
        stream = _drawn(draw, users) if is_fresh else _changed(best, draw, users)
        part = most_behind(stream, policy)
        if part >= most:
            best, most = stream, part
    return float(most), best


def most_behind(stream: Stream, policy: Policy) -> float:
    """Return the largest part of its bound, and a second, by which a job of the stream is behind at any instant.

    Of jobs whose user has at no time more than an even part of the jobs that are there.
    """
    count = len(stream)
    left, isolated_s = np.array([float(each.steps) for each in stream]), np.zeros(count)
    age_s, longest_s, is_bounded = np.zeros(count), np.zeros(count), np.ones(count, dtype=bool)
    most = 0.0
    for second in range(SECONDS):
        there = np.flatnonzero((np.array([each.at_s for each in stream]) <= second) & (left > 1e-9))
        if not len(there):
            continue
        problem = _problem([stream[row] for row in there], left[there], age_s[there], isolated_s[there])
        share = measures.even_share(problem)
        is_bounded[there] &= _has_an_even_part(problem)
        longest_s[there] = np.maximum(longest_s[there], measures.isolated_finish_s(problem, share))
        rate = measures.effective_throughput(problem, policy.allocate(problem).time_fraction)
        left[there] -= rate * STEP_S
        isolated_s[there] += rate / measures.isolated_rate(problem, share) * STEP_S
        age_s[there] += STEP_S
        behind = (age_s - isolated_s)[there] / ((LATE_RHO - 1) * longest_s[there] + STEP_S)
        most = max(most, float(behind[is_bounded[there]].max(initial=0.0)))
    return most


def _problem(jobs: Sequence[Arrival], left: FloatArray, age_s: FloatArray, isolated_s: FloatArray) -> AllocationProblem:
    count, none = len(jobs), np.zeros(len(jobs))
    columns = JobColumns(
        job_ids=tuple(f"j{row}" for row in range(count)),
        users=tuple(f"user-{each.user}" for each in jobs),
        tier_of_job=np.zeros(count, dtype=np.int64),
        scale_factor=np.ones(count, dtype=np.int64),
        steps_per_s=np.array([KINDS[each.kind] for each in jobs]),
        stated_weight=np.ones(count),
        priority=np.zeros(count, dtype=np.int64),
        steps_left=left,
        length_error=none,
        submitted_at_s=-age_s,
        attained_service_s=none,
        isolated_time_s=isolated_s,
        deadline_at_s=np.full(count, np.inf),
        cpu_cores=none,
        memory_bytes=none,
    )
    cluster = ClusterColumns(
        accelerator_types=("a", "b"),
        capacity_workers=np.array(WORKERS),
        price_usd_per_hour=np.ones(2),
        cpu_cores=np.inf,
        memory_bytes=np.inf,
    )
    tiers = (Tier(name="default"),)
    problem = problem_of(
        columns, cluster, tiers=tiers, now_s=0.0, round_duration_s=STEP_S, pair_rates=None, warm_start={}
    )
    return replace(problem, steps_remaining=left)  # a part of a step counts here


def _has_an_even_part(problem: AllocationProblem) -> BoolArray:
    """Return of which jobs the user has at most as many as each user would have if all had as many, (n,)."""
    users = np.unique(problem.users)
    own = np.array([problem.users.count(user) for user in problem.users])
    return np.asarray(own * len(users) <= len(own))


def _drawn(draw: np.random.Generator, users: int) -> Stream:
    return tuple(_arrival(draw, users) for _ in range(draw.integers(2, 12)))


def _arrival(draw: np.random.Generator, users: int) -> Arrival:
    at_s, steps, kind, user = draw.integers([0, 1, 0, 0], [30, 90, len(KINDS), users])
    return Arrival(int(at_s), int(steps), int(kind), int(user))


def _changed(stream: Stream, draw: np.random.Generator, users: int) -> Stream:
    """Return the stream with one job changed, added or left out."""
    row, other = int(draw.integers(len(stream))), _arrival(draw, users)
    mutated = stream[row]._replace(**{name: getattr(other, name) for name in Arrival._fields if draw.random() < 0.4})
    added = (other, mutated) if len(stream) < 14 and draw.random() < 0.3 else (mutated,)
    kept = () if len(stream) > 2 and draw.random() < 0.1 else added
    return (*stream[:row], *kept, *stream[row + 1 :])


if __name__ == "__main__":
    run("Late jobs", rows)
