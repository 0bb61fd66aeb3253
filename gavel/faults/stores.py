"""The store as one process of the service sees it, with what may befall a call, and what all processes share."""

import atexit
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Protocol

from gavel.config import Settings
from gavel.errors import StoreUnavailable
from gavel.faults.crash_points import ActKind
from gavel.faults.scenario import ROUND_S
from gavel.mechanism.planning.reservations import Reservations
from gavel.ports import Changes, Snapshot, ThroughputEstimate
from gavel.store.leadership_rules import Election, LeaderRow
from gavel.store.memory import MemoryStore
from gavel.store.memory_leadership import LeadershipInMemory, SharedRow
from gavel.store.samples import SimulationStore
from gavel.store.sql import SqlStore
from gavel.types import Job, JobId, Prediction, Term

BUSY_TIMEOUT_S = 5.0


class SharedStores(Protocol):
    """What all processes share: each opens its own view of it."""

    requests: SimulationStore  # what clients use, and what invariants read

    def open(self) -> tuple[SimulationStore, Election, Callable[[], None]]:
        """Return a process's store, its part in the leadership, and the check of each of its commits."""

    def close(self) -> None:
        """Close everything."""


OpenStores = Callable[[int, Path], SharedStores]
"""Opens empty stores for a seed and a folder."""


class InMemory:
    """One store in memory for all processes."""

    def __init__(self, seed: int, _: Path) -> None:
        self.requests: SimulationStore = MemoryStore(random_bits=Random(f"ids-{seed}").getrandbits)  # noqa: S311
        self._row = SharedRow()

    def open(self) -> tuple[SimulationStore, Election, Callable[[], None]]:
        """Return the shared store; a leader's commits are checked before they reach it."""
        leadership = LeadershipInMemory(self._row)
        return self.requests, leadership, leadership.check

    def close(self) -> None:
        """Do nothing: nothing is held outside this process."""


class InDatabase:
    """A real database; each process has connections and a writer of its own, as in production."""

    def __init__(self, seed: int, url: str) -> None:
        self._seed, self._url, self._opened = seed, url, list[SqlStore]()
        self.requests: SimulationStore = self._store()

    def _store(self) -> SqlStore:
        number = len(self._opened)
        bits = Random(f"ids-{self._seed}-{number}").getrandbits  # noqa: S311 - not for secrets
        rule = Reservations(settings=Settings(round_duration_s=ROUND_S))  # type: ignore[call-arg]
        store = SqlStore(self._url, busy_timeout_s=BUSY_TIMEOUT_S, random_bits=bits, reservation_rule=rule)
        self._opened.append(store)
        return store

    def open(self) -> tuple[SimulationStore, Election, Callable[[], None]]:
        """Return a store of the process's own, which checks the leadership in each commit itself."""
        store = self._store()
        return store, store.leadership, lambda: None

    def close(self) -> None:
        """Close every connection."""
        for store in self._opened:
            store.close()


class OnFile(InDatabase):
    """A fresh SQLite database on a file."""

    def __init__(self, seed: int, folder: Path) -> None:
        path = folder / "gavel.db"
        shutil.copyfile(_migrated(), path)
        super().__init__(seed, f"sqlite:///{path}")


@cache
def _migrated() -> Path:
    """Return the file of an empty database with all migrations, made once in a process."""
    folder = mkdtemp(prefix="gavel-faults-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "empty.db"
    SqlStore(f"sqlite:///{path}").close()
    return path


class ProcessStore:
    """A SchedulerStore. `befalls` is called before and after each commit, and may end or suspend the process there.

    `another_reads` says whether another part of the process, as the chores are, reads the store before this commit;
    `looked` is told what each look has seen.
    """

    def __init__(
        self,
        store: SimulationStore,
        *,
        check_leads: Callable[[], None],
        befalls: Callable[[str], None],
        is_down: Callable[[], bool],
        committed: Callable[[Changes, int], None],
        another_reads: Callable[[], bool],
        looked: Callable[[Snapshot], None],
    ) -> None:
        self._store, self._check_leads = store, check_leads
        self._befalls, self._is_down, self._committed = befalls, is_down, committed
        self._another_reads, self._looked = another_reads, looked

    def snapshot(self) -> Snapshot:
        """Return a consistent snapshot. Raises StoreUnavailable."""
        self._refuse_if_down()
        snapshot = self._store.snapshot()
        self._looked(snapshot)
        return snapshot

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes, or none; the answer may be lost all the same."""
        self._befalls("before_commit")
        self._refuse_if_down()
        if self._another_reads():
            self._store.snapshot()
        self._check_leads()
        version = self._store.commit(expected_version, changes)
        self._committed(changes, version)
        self._befalls("after_commit")
        return version

    def job(self, job_id: JobId) -> Job:
        """Return the job. Raises NotFound."""
        return self._store.job(job_id)

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """Return the predictions for the jobs that completed last."""
        return self._store.predictions(limit=limit)

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """Return the estimator's table as last committed."""
        return self._store.throughputs()

    def _refuse_if_down(self) -> None:
        if self._is_down():
            raise StoreUnavailable("the database cannot be used now")


class StrikingElection:
    """An Election; `strikes` is called before and after the leadership is taken, and may end the process there."""

    def __init__(self, election: Election, strikes: Callable[[ActKind, bool], None]) -> None:
        self._election, self._strikes = election, strikes

    def current(self) -> LeaderRow:
        """Return the row of the leader as it is now."""
        return self._election.current()

    def blocked_by(self) -> int | None:
        """Return the pid of the process that keeps others from writing; None if none is known."""
        return self._election.blocked_by()

    def take(self, holder: str, *, lease_s: float, seen: LeaderRow) -> Term | None:
        """Become the leader."""
        self._strikes(ActKind.LEADERSHIP, False)
        term = self._election.take(holder, lease_s=lease_s, seen=seen)
        self._strikes(ActKind.LEADERSHIP, True)
        return term

    def beat(self) -> None:
        """Increment the beat."""
        self._election.beat()

    def resign(self) -> None:
        """Give up the leadership."""
        self._election.resign()
