"""A database with as many unfinished jobs as a large site has: users, tiers, arrays, gangs, deadlines."""

import random
from collections.abc import Iterator, Sequence

from gavel.store.sql import SqlStore
from gavel.types import JobSpec, Tier, User

USERS, KINDS = 200, 120
TIERS = (
    Tier(name="research", weight=4.0, guarantee=0.3),
    Tier(name="vision", weight=2.0, parent="research"),
    Tier(name="language", weight=3.0, objective="finish_time_fairness", parent="research"),
    Tier(name="product", weight=3.0, guarantee=0.2),
    Tier(name="batch", weight=1.0, objective="fifo"),
)
LEAVES = ("vision", "language", "product", "batch")
SIZES = (1,) * 16 + (2,) * 3 + (4,)  # of gangs
SIZES_ARRAYS = (1,) * 30 + (10,) * 6 + (100,) * 3 + (1000,)
DAY_S = 86_400.0


def fill(store: SqlStore, now_s: float, *, jobs: int) -> None:
    """Store tiers, users and so many queued jobs, the same each time but for their ids."""
    for tier in TIERS:
        store.put_tier(tier, expected_version=None, by="benchmark", now_s=now_s)
    for index in range(USERS):
        store.put_user(User(name=_user(index), tiers=LEAVES), by="benchmark", now_s=now_s)
    for specs in _submissions(random.Random(0), jobs, now_s):
        store.submit_many(specs, key=None, body_hash="", now_s=now_s, is_array=len(specs) > 1)


def _submissions(draw: random.Random, jobs: int, now_s: float) -> Iterator[Sequence[JobSpec]]:
    """Yield single jobs and arrays until there are so many jobs."""
    left = jobs
    while left:
        size = min(left, draw.choice(SIZES_ARRAYS))
        left -= size
        yield [_spec(draw, now_s)] * size


def _spec(draw: random.Random, now_s: float) -> JobSpec:
    kind = f"model-{int(KINDS * draw.random() ** 2)}-b{2 ** draw.randrange(4, 9)}"  # some kinds are far more frequent
    return JobSpec(
        kind=kind,
        name=f"run-{draw.randrange(10_000)}",
        user=_user(int(USERS * draw.random() ** 2)),
        tier=draw.choice(LEAVES),
        argv=("virtual", kind),
        total_steps=int(draw.lognormvariate(10, 1.5)) + 600,
        scale_factor=draw.choice(SIZES),
        priority=draw.choice((0, 0, 0, 1)),
        weight=draw.choice((1.0, 1.0, 2.0)),
        memory_bytes=draw.choice((0, 0, 16 << 30)),
        deadline_at_s=now_s + DAY_S * draw.uniform(1, 30) if draw.random() < 0.05 else None,
        labels={"project": f"p{draw.randrange(40)}"},
    )


def _user(index: int) -> str:
    return f"user-{index}"
