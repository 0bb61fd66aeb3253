"""The virtual cluster shows what every backend must show."""

from collections.abc import Callable, Mapping

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.conformance_results import CHECKS as OF_RESULTS
from gavel.backends.harness import Behaviour
from gavel.backends.outputs import Outputs
from gavel.clock import ManualClock
from gavel.simulator.cluster import VirtualCluster, program
from gavel.types import Cluster, GangState, Node, Observation, Worker

STEP_S = 0.1
RATES = {("trains", size, name): 1.0 for size in (1, 2) for name in ("a", "b")}


class VirtualHarness:
    """Two workers of type a and one of b on one node. Nothing runs but the clock."""

    short_s = 10.0
    grace_s = 1.0
    cannot = {  # noqa: RUF012  part of the harness's protocol
        "an_end_says_how_it_came": "a virtual gang runs no program that could fail or write a log",
        "an_end_by_a_signal_names_it": "a virtual gang has no process that a signal could reach",
        "a_stubborn_gang_is_killed_with_all_it_started": "a virtual gang has no processes that could resist",
        "a_program_that_is_missing_is_named": "a virtual gang has no program, only a kind; see test_cluster",
        **{check.__name__: "a virtual gang has no files, and no program that could write some" for check in OF_RESULTS},
    }
    python = ""

    def __init__(self) -> None:
        self.clock = ManualClock()
        workers = tuple(Worker(id=name, node="node", accelerator_type=name[0]) for name in ("a-0", "a-1", "b-0"))
        cluster = Cluster(nodes=(Node(name="node"),), workers=workers)
        self.backend = VirtualCluster(cluster, RATES, self.clock)

    def now_s(self) -> float:
        return self.clock.now_s()

    def worker(self, name: str) -> str:
        return name

    def argv(self, behaviour: Behaviour) -> tuple[str, ...]:
        return program("trains")

    def wait_until(self, holds: Callable[[Observation], bool]) -> Observation:
        for _ in range(2000):
            seen = self.backend.observe()
            if holds(seen):
                return seen
            self.clock.advance(STEP_S)
        raise AssertionError(f"not so after {2000 * STEP_S} s")

    def wait_blindly(self, until_s: float) -> None:
        self.clock.wait(until_s)

    def crash(self) -> None:
        """A virtual cluster is its own state: a new service finds it as it is."""

    def recover(self) -> None:
        """The same cluster, asked by somebody else."""

    def spread(self, nodes: int) -> None:
        names = [f"node-{index}" for index in range(nodes)]
        workers = tuple(Worker(id=f"a-{index}", node=name, accelerator_type="a") for index, name in enumerate(names))
        cluster = Cluster(nodes=tuple(Node(name=name) for name in names), workers=workers)
        self.backend = VirtualCluster(cluster, RATES, self.clock)

    def lose_node(self, name: str) -> None:
        self.backend.lose_node(name)

    def return_node(self, name: str) -> None:
        self.backend.return_node(name)

    def store_code(self, files: Mapping[str, bytes]) -> str:
        raise NotImplementedError

    def store_secret(self, user: str, name: str, value: str) -> None:
        raise NotImplementedError

    def outputs(self) -> Outputs:
        raise NotImplementedError

    def processes(self) -> int:
        seen = self.backend.observe().gangs
        return sum(len(gang.worker_ids) for gang in seen if gang.state is GangState.RUNNING)


@pytest.mark.parametrize(
    "check", [c for c in CHECKS if c.__name__ not in VirtualHarness.cannot], ids=lambda c: c.__name__
)
def test_the_virtual_cluster_conforms(check: Check) -> None:
    check(VirtualHarness())


def test_what_it_cannot_be_put_through_is_in_the_suite() -> None:
    assert set(VirtualHarness.cannot) <= {check.__name__ for check in CHECKS}
