"""What a check of `gavel.backends.conformance` is given, and the words in which it speaks to the backend.

A cluster under test has the workers `a-0` and `a-1` of type `a`, and `b-0` of type `b`, all on one node, unless a check
asks for it to be spread over several.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from gavel.ports import ClusterBackend, Instruction, LaunchGang, SetResources, StopGang
from gavel.types import EphemeralResource, GangExit, GangSeen, GangState, Observation

OWNER = "gavel"


class Behaviour(StrEnum):
    """What a job of a check does."""

    TRAINS = "trains"  # until it is stopped, and then ends in good order
    FINISHES = "finishes"  # does its only step, reports that, and exits 0
    FAILS = "fails"  # prints "about to fail" and exits 3
    DIES = "dies"  # by signal 6
    STUBBORN = "stubborn"  # ignores every wish to stop, and so does the child it starts
    MISSING = "missing"  # a program that is not there


class Harness(Protocol):
    """A cluster under test and what a check may do to it."""

    backend: ClusterBackend
    cannot: Mapping[str, str]  # name of a check -> why this cluster cannot be put through it
    short_s: float  # a lease that ends soon: enough for a gang to start
    grace_s: float  # from the end of a lease to the end of a gang that ignores it, at most

    def now_s(self) -> float:
        """The cluster's time."""

    def argv(self, behaviour: Behaviour) -> tuple[str, ...]:
        """A program that behaves so."""

    def wait_until(self, holds: Callable[[Observation], bool]) -> Observation:
        """Observe, letting time pass, until the condition holds; fails the check after a limit."""

    def wait_blindly(self, until_s: float) -> None:
        """Let time pass without any call to the backend."""

    def crash(self) -> None:
        """The service dies without a word. The cluster goes on alone."""

    def recover(self) -> None:
        """A new service takes over the same cluster: `backend` is a new one."""

    def spread(self, nodes: int) -> None:
        """Another cluster instead, fresh: so many nodes, node i with the one worker `a-i`."""

    def lose_node(self, name: str) -> None:
        """The node loses power, or the way to it is cut for good."""

    def return_node(self, name: str) -> None:
        """It is back, with nothing running on it."""

    def processes(self) -> int:
        """How many processes of gangs there are, descendants included."""


def resource(
    harness: Harness, name: str, capacity: int = 1, *, generation: int = 1, lasts_s: float = 60
) -> SetResources:
    """One ephemeral resource on the only node."""
    node = harness.backend.observe().cluster.nodes[0].name
    expires_at_s = harness.now_s() + lasts_s
    said = EphemeralResource(
        name=name,
        node=node,
        capacity=capacity,
        owner=OWNER,
        lease_expires_at_s=expires_at_s,
        generation=generation,
    )
    return SetResources(resources=(said,))


def launch(
    harness: Harness,
    job_id: str,
    *workers: str,
    token: int = 1,
    behaviour: Behaviour = Behaviour.TRAINS,
    needs: str = "",
    lasts_s: float = 60,
) -> LaunchGang:
    """A gang on these workers (`a-0` if none is named) that requires its own resource, or the one it `needs`."""
    return LaunchGang(
        job_id=job_id,
        token=token,
        user="ann",
        argv=harness.argv(behaviour),
        env={},
        accelerator_type=(workers or ("a-0",))[0][0],
        worker_ids=workers or ("a-0",),
        resource=f"{OWNER}/{needs or f'gang-{job_id}-{token}'}",
        lease_expires_at_s=harness.now_s() + lasts_s,
        start_step=0,
        total_steps=1 if behaviour is Behaviour.FINISHES else 1_000_000_000,
        checkpoint=None,
    )


def gang(
    harness: Harness,
    job_id: str,
    *workers: str,
    token: int = 1,
    behaviour: Behaviour = Behaviour.TRAINS,
    lasts_s: float = 60,
) -> list[Instruction]:
    """A gang and the resource it requires."""
    capacity = max(1, len(workers))
    return [
        resource(harness, f"gang-{job_id}-{token}", capacity, generation=token, lasts_s=lasts_s + harness.grace_s),
        launch(harness, job_id, *workers, token=token, behaviour=behaviour, lasts_s=lasts_s),
    ]


def spread_gang(harness: Harness, job_id: str, *nodes: int, token: int = 1) -> list[Instruction]:
    """A gang with one rank on each of these nodes of a cluster that is spread: its resource on each, its launch."""
    names = [node.name for node in harness.backend.observe().cluster.nodes]
    one, start = gang(harness, job_id, *(f"a-{index}" for index in nodes), token=token)
    assert isinstance(one, SetResources)
    said = replace(one.resources[0], capacity=1)
    return [*(SetResources(resources=(replace(said, node=names[index]),)) for index in nodes), start]


def find(seen: Observation, job_id: str, token: int = 1) -> GangSeen | None:
    """The gang, if the backend knows it."""
    return next((each for each in seen.gangs if (each.job_id, each.token) == (job_id, token)), None)


def is_in(state: GangState, *job_ids: str, token: int = 1) -> Callable[[Observation], bool]:
    """Holds when each of the jobs' gangs is in the state; RUNNING means that its ranks execute."""

    def is_there(each: GangSeen | None) -> bool:
        executes = state is not GangState.RUNNING or (each is not None and each.started_at_s is not None)
        return each is not None and each.state is state and executes

    return lambda seen: all(is_there(find(seen, job_id, token)) for job_id in job_ids)


def state_of(harness: Harness, job_id: str, token: int = 1) -> GangState | None:
    """The gang's state now; None if the backend does not know it."""
    found = find(harness.backend.observe(), job_id, token)
    return found.state if found else None


def exit_of(harness: Harness, job_id: str, token: int = 1) -> GangExit:
    """How the gang ended, once it has."""
    found = find(harness.wait_until(is_in(GangState.ENDED, job_id, token=token)), job_id, token)
    assert found is not None
    assert found.exit is not None, "a gang that ended says how"
    return found.exit


def stop(*job_ids: str, token: int = 1) -> list[Instruction]:
    """Stop these jobs' gangs."""
    return [StopGang(job_id=job_id, token=token) for job_id in job_ids]
