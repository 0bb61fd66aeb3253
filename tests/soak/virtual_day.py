"""A day of the scheduler in virtual time: production driver, real database and its clearing, a virtual cluster."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psutil
import sqlalchemy as sa

from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.daemon.chores import Clearing
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.simulator.cluster import VirtualCluster, program
from gavel.store.schema import Base
from gavel.store.sql import SqlStore
from tests.builders import a_cluster, a_spec

STAYS = {"audit", "usage"}  # what people decided, and what tiers used, stay for good
KINDS = ("mlp", "cnn", "rnn")
RATE = 10.0  # steps per second
KEPT_S = 300.0
CHOICES: Mapping[str, Any] = {
    "round_duration_s": 60.0,
    "keep_jobs_s": KEPT_S,
    "keep_keys_s": KEPT_S,
    "keep_rounds": 10,
    "planning_lead_fraction": 0.0,
    "policy": "max_min_fairness",
}


class VirtualDay:
    """A job arrives every `every_s` seconds, works for about as long as four workers need for it, and is cleared."""

    def __init__(self, folder: Path, *, every_s: float = 20.0) -> None:
        self._url, self._every_s, self._chance = f"sqlite:///{folder / 'gavel.db'}", every_s, Random(1)
        self.clock = ManualClock(1_000_000.0)
        settings = Settings(state_dir=folder, **CHOICES)
        rates = {(kind, 1, name): RATE for kind in KINDS for name in ("fast", "slow")}
        self._cluster = VirtualCluster(a_cluster(fast=2, slow=2), rates, self.clock, 0.0, 1e-6)
        self.store = SqlStore(self._url, keep_rounds=settings.keep_rounds, keep_events_s=KEPT_S)
        self._clearing = Clearing(settings, self.store, self.clock, lambda job_id: None)
        self._driver = Driver(
            store=self.store,
            backend=self._cluster,
            runner=InlineRunner(),
            estimator=ReconciledThroughputs(),
            fallback=EqualShare(),
            clock=self.clock,
            settings=settings,
        )
        self.jobs = 0
        gc.freeze()  # what was there before stays as it is, and need not be looked through for every sample

    def run(self, hours: float, *, sample_every_s: float) -> Iterator[dict[str, float]]:
        """Yield what there is after each `sample_every_s` of the time."""
        now_s = self.clock.now_s()
        end_s, sample_s, arrival_s = now_s + 3600.0 * hours, now_s + sample_every_s, now_s
        while now_s < end_s:
            while arrival_s <= now_s:
                self._submit(arrival_s)
                arrival_s += self._every_s
            wakes_s = self._driver.tick()
            self.clock.wait(max(now_s, min(wakes_s, arrival_s, sample_s, self._cluster.next_event_at_s())))
            now_s = self.clock.now_s()
            if now_s >= sample_s:
                sample_s += sample_every_s
                self._clearing.jobs()
                self._clearing.keys()
                yield self.sample()

    def sample(self) -> dict[str, float]:
        """Objects that Python keeps, resident memory, descriptors, and the rows and bytes of the database."""
        gc.collect()
        process = psutil.Process()
        figures = {
            "objects": float(gc.get_freeze_count() + len(gc.get_objects())),
            "memory_bytes": float(process.memory_info().rss),
            "descriptors": float(process.num_fds()),
            "unfinished_jobs": float(len(self.store.snapshot().jobs)),
        }
        return figures | database_figures(self._url)

    def _submit(self, at_s: float) -> None:
        self.jobs += 1
        kind, seconds = self._chance.choice(KINDS), self._chance.uniform(10.0, 90.0)
        spec = replace(a_spec(tier="default"), kind=kind, argv=program(kind), total_steps=int(RATE * seconds))
        self.store.submit(spec, key=f"key-{self.jobs}", body_hash="", now_s=at_s)

    def close(self) -> None:
        gc.unfreeze()
        self.store.close()


def database_figures(url: str) -> dict[str, float]:
    """Bytes of the pages that are in use, and rows of each table that does not stay for good."""
    engine = sa.create_engine(url)
    tables = [table for table in Base.metadata.sorted_tables if table.name not in STAYS]
    with engine.connect() as connection:
        rows = {
            f"rows of {table.name}": float(
                connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            )
            for table in tables
        }
        pages, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
    engine.dispose()
    return rows | {"database_bytes": float((pages - free) * size)}
