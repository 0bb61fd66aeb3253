"""Two virtual clusters on a clock that tests move, as regions whose links tests cut: they fail, or hang."""

import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from gavel.backends.several.backend import SeveralBackend
from gavel.clock import ManualClock
from gavel.errors import BackendUnavailable
from gavel.ports import Instruction
from gavel.simulator.cluster import VirtualCluster
from gavel.types import Cluster, GangState, JobId, Node, Observation, Term, Worker

REGIONS = ("eu", "us")
RATES = {("trains", 1, "a"): 1.0, ("trains", 1, "a@eu"): 1.0, ("trains", 1, "a@us"): 1.0}
GRACE_S, SILENT_S = 1.0, 10.0
ANSWER_LIMIT_S = 0.05  # of real time: how long a link that hangs is waited for
T = TypeVar("T")


class State(StrEnum):
    """The state of a link."""

    UP = "up"
    FAILS = "fails"  # every call raises at once
    HANGS = "hangs"  # every call returns once the link is in another state, and is carried out then if it is up


class Line:
    """A cluster, and the link to it; calls of several services may wait on it."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.state = State.UP
        self.changed = threading.Condition()
        self.waiting = 0

    def become(self, state: State) -> None:
        """Change the state, and return once every call that hung is over, unless it hangs on."""
        with self.changed:
            self.state = state
            self.changed.notify_all()
            if state is not State.HANGS:
                assert self.changed.wait_for(lambda: not self.waiting, 10.0)

    def live(self) -> set[JobId]:
        """The jobs of which a gang runs on the cluster now, whoever knows of it."""
        with self.changed:
            gangs = self.cluster.observe().gangs
        return {each.job_id for each in gangs if each.state is GangState.RUNNING}


class LinkedCluster:
    """The backend that a service opens over a link."""

    def __init__(self, line: Line) -> None:
        self._line, self._is_closed = line, False
        self._through(lambda: None)

    def observe(self) -> Observation:
        return self._through(self._line.cluster.observe)

    def execute(self, instructions: Sequence[Instruction]) -> None:
        self._through(lambda: self._line.cluster.execute(instructions))

    def read_log(self, job_id: JobId, offset: int = 0, limit_bytes: int = 65536) -> tuple[bytes, int]:
        raise NotImplementedError

    def forget_job(self, job_id: JobId) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._is_closed = True

    def end(self) -> None:
        """The service has ended: what it still waits for is never carried out."""
        with self._line.changed:
            self._is_closed = True

    def _through(self, call: Callable[[], T]) -> T:
        line = self._line
        with line.changed:
            line.waiting += 1
            try:
                line.changed.wait_for(lambda: line.state is not State.HANGS or self._is_closed)
                if line.state is State.FAILS or self._is_closed:
                    raise BackendUnavailable("the link is cut")
                return call()
            finally:
                line.waiting -= 1
                line.changed.notify_all()


class Services:
    """One service after another over both clusters, with one folder."""

    def __init__(self, folder: Path, workers: int = 3) -> None:
        self.checkpoints = dict.fromkeys(REGIONS, "")  # one place for both
        self.folder, self.clock = folder, ManualClock(1e9)
        self.lines = {
            name: Line(VirtualCluster(_cluster(workers), RATES, self.clock, lease_grace_s=GRACE_S)) for name in REGIONS
        }
        self._opened: list[LinkedCluster] = []
        self._generation = 0
        self.backend = self.open()

    def open(self) -> SeveralBackend:
        """Start a service."""
        self._generation += 1
        return SeveralBackend(
            state_dir=self.folder / "regions",
            logs=self.folder,
            regions={name: ("simulated", self._opening(line)) for name, line in self.lines.items()},
            clock=self.clock,
            lease_grace_s=GRACE_S,
            checkpoints=self.checkpoints,
            term=Term(database="d", generation=self._generation),
            answer_limit_s=ANSWER_LIMIT_S,
            silent_limit_s=SILENT_S,
        )

    def _opening(self, line: Line) -> Callable[[], LinkedCluster]:
        def opened() -> LinkedCluster:
            self._opened.append(LinkedCluster(line))
            return self._opened[-1]

        return opened

    def kill(self) -> None:
        """End the service in the middle of what it does; its calls that hang are never carried out."""
        for each in self._opened:
            each.end()
        for line in self.lines.values():
            with line.changed:
                line.changed.notify_all()
        self._opened.clear()
        self.backend.close()

    def restart(self) -> None:
        """End the service, and start another one."""
        self.kill()
        self.backend = self.open()

    def seen(self) -> Observation:
        """What the service sees, once it has given up the regions that do not answer."""
        end_s = time.monotonic() + 20.0
        while True:
            assert time.monotonic() < end_s, "the service sees nothing"
            try:
                return self.backend.observe()
            except BackendUnavailable:
                self.clock.advance(1.0)


def _cluster(workers: int) -> Cluster:
    return Cluster(
        nodes=tuple(Node(name=f"node-{index}") for index in range(workers)),
        workers=tuple(Worker(id=f"a-{index}", node=f"node-{index}", accelerator_type="a") for index in range(workers)),
    )
