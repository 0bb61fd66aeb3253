"""The harness of the checks in `gavel.backends.conformance`, and helpers that send instructions to the backend.

A cluster under test has the workers `a-0` and `a-1` of type `a`, and `b-0` of type `b`, all on one node, unless a check
asks for it to be spread over several.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from gavel.backends.nodes.stored_outputs import StoredOutputs
from gavel.backends.outputs import Outputs
from gavel.ports import ClusterBackend, Instruction, LaunchGang, SetResources, StopGang
from gavel.types import EphemeralResource, GangExit, GangSeen, GangState, Observation, WorkerId

OWNER = "gavel"


class Behaviour(StrEnum):
    """What a job of a check does."""

    TRAINS = "trains"  # until it is stopped, and then ends in good order
    FINISHES = "finishes"  # does its only step, reports that, and exits 0
    FAILS = "fails"  # prints "about to fail" and exits 3
    DIES = "dies"  # by SIGABRT (signal 6)
    STUBBORN = "stubborn"  # ignores every request to stop, and so does the child it starts
    MISSING = "missing"  # a program that is not there


class Harness(Protocol):
    """A cluster under test and what a check may do to it."""

    backend: ClusterBackend
    cannot: Mapping[str, str]  # name of a check -> why this cluster cannot be put through it
    short_s: float  # a lease that ends soon: enough for a gang to start
    grace_s: float  # from the end of a lease to the end of a gang that ignores it, at most
    python: str  # an interpreter of the nodes, for setups

    def now_s(self) -> float:
        """Return the cluster's time."""

    def worker(self, name: str) -> WorkerId:
        """Return how the cluster calls this worker."""

    def argv(self, behaviour: Behaviour) -> tuple[str, ...]:
        """Return a program that behaves so."""

    def wait_until(self, holds: Callable[[Observation], bool]) -> Observation:
        """Observe, letting time pass, until the condition holds; fails the check after a limit."""

    def wait_blindly(self, until_s: float) -> None:
        """Let time pass without any call to the backend."""

    def crash(self) -> None:
        """Kill the service; the cluster goes on alone."""

    def recover(self) -> None:
        """Start a new service on the same cluster: `backend` is a new one."""

    def spread(self, nodes: int) -> None:
        """Replace the cluster by a fresh one of so many nodes, node i with the one worker `a-i`."""

    def lose_node(self, name: str) -> None:
        """Make the node lose power, or cut its network for good."""

    def return_node(self, name: str) -> None:
        """Bring the node back, with nothing running on it."""

    def store_code(self, files: Mapping[str, bytes]) -> str:
        """Store a code version of these files; return its digest."""

    def store_secret(self, user: str, name: str, value: str) -> None:
        """Store a secret of a user."""

    def outputs(self) -> Outputs | StoredOutputs:
        """Return the output folders of the jobs, as the service shows them."""

    def processes(self) -> int:
        """Return how many processes of gangs there are, descendants included."""


def resource(
    harness: Harness, name: str, capacity: int = 1, *, generation: int = 1, lasts_s: float = 60
) -> SetResources:
    """Return the instruction that sets one ephemeral resource on the only node."""
    node = harness.backend.observe().cluster.nodes[0].name
    expires_at_s = harness.now_s() + lasts_s
    new = EphemeralResource(
        name=name,
        node=node,
        capacity=capacity,
        owner=OWNER,
        lease_expires_at_s=expires_at_s,
        generation=generation,
    )
    return SetResources(resources=(new,))


def launch(
    harness: Harness,
    job_id: str,
    *workers: str,
    generation: int = 1,
    behaviour: Behaviour = Behaviour.TRAINS,
    needs: str = "",
    lasts_s: float = 60,
) -> LaunchGang:
    """Return the launch of a gang on these workers (default `a-0`); it requires its own resource, or `needs`."""
    return LaunchGang(
        job_id=job_id,
        generation=generation,
        user="ann",
        argv=harness.argv(behaviour),
        env={},
        accelerator_type=(workers or ("a-0",))[0][0],
        worker_ids=tuple(harness.worker(each) for each in workers or ("a-0",)),
        resource=f"{OWNER}/{needs or f'gang-{job_id}-{generation}'}",
        lease_expires_at_s=harness.now_s() + lasts_s,
        start_step=0,
        total_steps=1 if behaviour is Behaviour.FINISHES else 1_000_000_000,
        checkpoint=None,
    )


def gang(
    harness: Harness,
    job_id: str,
    *workers: str,
    generation: int = 1,
    behaviour: Behaviour = Behaviour.TRAINS,
    lasts_s: float = 60,
) -> list[Instruction]:
    """Return the instructions for a gang and the resource it requires."""
    capacity = max(1, len(workers))
    return [
        resource(
            harness, f"gang-{job_id}-{generation}", capacity, generation=generation, lasts_s=lasts_s + harness.grace_s
        ),
        launch(harness, job_id, *workers, generation=generation, behaviour=behaviour, lasts_s=lasts_s),
    ]


def spread_gang(harness: Harness, job_id: str, *nodes: int, generation: int = 1) -> list[Instruction]:
    """Return the instructions for a gang with one rank on each of these nodes, with its resource on each."""
    names = [node.name for node in harness.backend.observe().cluster.nodes]
    one, start = gang(harness, job_id, *(f"a-{index}" for index in nodes), generation=generation)
    assert isinstance(one, SetResources)
    template = replace(one.resources[0], capacity=1)
    return [*(SetResources(resources=(replace(template, node=names[index]),)) for index in nodes), start]


def find(seen: Observation, job_id: str, generation: int = 1) -> GangSeen | None:
    """Return the gang; None if the backend does not know it."""
    return next((each for each in seen.gangs if (each.job_id, each.generation) == (job_id, generation)), None)


def is_in(state: GangState, *job_ids: str, generation: int = 1) -> Callable[[Observation], bool]:
    """Return a condition: each of the jobs' gangs is in the state; RUNNING means that its ranks execute."""

    def is_there(each: GangSeen | None) -> bool:
        executes = state is not GangState.RUNNING or (each is not None and each.started_at_s is not None)
        return each is not None and each.state is state and executes

    return lambda seen: all(is_there(find(seen, job_id, generation)) for job_id in job_ids)


def state_of(harness: Harness, job_id: str, generation: int = 1) -> GangState | None:
    """Return the gang's state now; None if the backend does not know it."""
    status = find(harness.backend.observe(), job_id, generation)
    return status.state if status else None


def exit_of(harness: Harness, job_id: str, generation: int = 1) -> GangExit:
    """Wait for the end of the gang and return how it ended."""
    status = find(harness.wait_until(is_in(GangState.ENDED, job_id, generation=generation)), job_id, generation)
    assert status is not None
    assert status.exit is not None, "a gang that ended says how"
    return status.exit


def stop(*job_ids: str, generation: int = 1) -> list[Instruction]:
    """Return the instructions that stop these jobs' gangs."""
    return [StopGang(job_id=job_id, generation=generation) for job_id in job_ids]
