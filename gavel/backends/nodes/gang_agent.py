"""The agent of one gang's allocation on one node; a backend's program starts it.

It has the node's part of one gang (of two, where they share workers), obeys the letters in its box, and answers there.
It frees its node when it is told to, when the cluster ends the allocation, and by itself once its gang has
ended and nobody has asked for long: then the service is gone.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gavel.backends import gang_processes
from gavel.backends.nodes.agent import NodeAgent
from gavel.backends.nodes.letters import Box, Letter, PostBox, Reply
from gavel.backends.nodes.protocol import PROTOCOL, Answer, Order, ShardWanted, Slot
from gavel.backends.state_dir_lock import StateDirLock
from gavel.child_processes import adopt_orphans
from gavel.errors import BackendUnavailable
from gavel.types import GangState

POLL_S = 0.02
LOOK_EVERY_S = 0.1  # at the gang, where there is no new order
BEAT_EVERY_S = 2.0
IDLE_S = 300.0  # seconds without an order and without a live gang, after which the node is freed
AGENTS = "agents"


class GangAgent:
    """One agent of ours and its letters. Raises BackendUnavailable, OSError."""

    def __init__(self, box: Box, place: "Place") -> None:
        self._box = box
        self._own, self._node = place.own, place.node
        self._agent = NodeAgent(place.node, str(place.node_folder), PROTOCOL, apart=f"{AGENTS}/{place.allocation}")
        self._cluster = place.cluster
        self._devices = place.devices
        self._letter: Letter | None = None
        self._last: Answer | None = None
        self._beat = self._answered = 0
        self._beat_at_s = self._ordered_at_s = time.monotonic()
        self._looked_at_s = 0.0
        self._ending_since_s: float | None = None

    def end(self, *_: object) -> None:
        """Let gangs save and end: the cluster ends the allocation."""
        self._ending_since_s = self._ending_since_s or time.monotonic()

    def serve(self) -> None:
        """Obey until the node is to be freed. Raises OSError if the folder of its box is gone."""
        while not self.turn():
            self._agent.carry(self._box.tunnels())
            _reap()
            time.sleep(POLL_S)

    def turn(self) -> bool:
        """Obey the newest letter, again if it is time to; return whether the node is to be freed. Raises OSError."""
        letter = self._box.letter()
        is_new = letter is not None and (self._letter is None or letter.number > self._letter.number)
        if letter is None and self._box.is_gone():
            return True
        if is_new:
            self._letter, self._ordered_at_s = letter, time.monotonic()
        if self._letter is None or self._letter.leaves:
            return self._letter is not None
        is_due = time.monotonic() - self._looked_at_s >= LOOK_EVERY_S
        if not (is_new or is_due):
            return False
        self._looked_at_s = time.monotonic()
        return self._look() and self._may_go()

    def clear(self) -> None:
        """End everything of ours here and delete what is not kept."""
        gang_processes.end_all(self._own / "gangs", gang_processes.homes_below(self._own / "gangs"))
        self._agent.close()
        shutil.rmtree(self._own, ignore_errors=True)

    def _look(self) -> bool:
        """Obey the order once more and answer if there is news; return whether nothing of ours runs."""
        assert self._letter is not None, "there is a first letter"
        order = self._letter.order
        newest = self._box.epoch()
        if newest > order.epoch:
            self._agent.exchange(Order(epoch=newest, isolation=order.isolation, job_users=order.job_users))
        shards = tuple(self._ending(each) for each in order.shards)
        answer = self._agent.exchange(replace(order, shards=self._devices.placed(shards)))
        self._tell(answer)
        return all(shard.state is GangState.ENDED for shard in answer.shards)

    def _ending(self, wanted: ShardWanted) -> ShardWanted:
        if self._ending_since_s is None or wanted.forget:
            return wanted
        return replace(wanted, stop=True, reason=wanted.reason or f"{self._cluster} ends its allocation")

    def _may_go(self) -> bool:
        is_forgotten = time.monotonic() - self._ordered_at_s > IDLE_S
        return is_forgotten or self._ending_since_s is not None

    def _tell(self, answer: Answer) -> None:
        assert self._letter is not None, "there is a first letter"
        state = replace(answer, node_boottime_s=0.0)
        is_due = time.monotonic() - self._beat_at_s >= BEAT_EVERY_S
        if state != self._last or is_due or self._answered != self._letter.number:
            self._beat, self._beat_at_s, self._last = self._beat + 1, time.monotonic(), state
            self._answered = self._letter.number
            number = self._letter.number
            self._box.answer(Reply(number=number, beat=self._beat, answer=answer, node=self._node))


class Devices:
    """Which accelerators the cluster gave to this allocation here: what it numbers from 0 is what the node names so.

    `given`: what its processes name them by, in the order of its workers; `kind_of`: what the vendor's library calls a
    resource of the cluster, "" for one that needs no variable.
    """

    def __init__(self, given: Sequence[str], kind_of: Callable[[str], str]) -> None:
        self._given, self._kind_of = given, kind_of
        self._place: dict[tuple[str, int], int] = {}

    def placed(self, shards: tuple[ShardWanted, ...]) -> tuple[ShardWanted, ...]:
        """Return the shards with the devices of this allocation: two gangs on the same workers get the same ones."""
        return tuple(self._of(each) for each in shards)

    def _of(self, wanted: ShardWanted) -> ShardWanted:
        launch = wanted.launch
        if launch is None:
            return wanted
        return replace(wanted, launch=replace(launch, slots=tuple(self._slot(slot) for slot in launch.slots)))

    def _slot(self, slot: Slot) -> Slot:
        kind = self._kind_of(slot.resource)
        if not kind:
            return slot
        place = self._place.setdefault((slot.resource, slot.index), len(self._place))
        device = self._given[place] if place < len(self._given) else ""
        return replace(slot, resource=kind, device=device)


def _reap() -> None:
    """Take the ends of supervisors, which are ours to take since they are kept below this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def clear_left(node_folder: Path, node: str) -> None:
    """End and delete what agents left on the node whose allocations are over: the cluster has killed them."""
    for left in (node_folder / node / AGENTS).glob("*"):
        try:
            StateDirLock(left, None).close()
        except BackendUnavailable:
            continue  # its agent lives
        gang_processes.end_all(left / "gangs", gang_processes.homes_below(left / "gangs"))
        shutil.rmtree(left, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an agent is: its allocation's name, the folder of all nodes' own folders, its node, what it was given.

    `cluster` is the cluster's name in sentences.
    """

    allocation: str
    node_folder: Path
    node: str
    cluster: str
    devices: Devices

    @property
    def own(self) -> Path:
        """Return the folder of this agent alone."""
        return self.node_folder / self.node / AGENTS / self.allocation


def serve(box: Box, place: Place) -> int:
    """Serve one allocation on this node; return the exit code."""
    os.umask(0o077)
    adopt_orphans()  # so that the cluster finds all of them, however it tracks processes
    try:
        clear_left(place.node_folder, place.node)
        agent = GangAgent(box, place)
    except (BackendUnavailable, OSError) as problem:
        with suppress(OSError):
            box.answer(Reply(number=0, beat=0, problem=f"its agent cannot work: {problem}", node=place.node))
        print(problem, file=sys.stderr)
        box.close()
        return 1
    signal.signal(signal.SIGTERM, agent.end)
    try:
        agent.serve()
    finally:
        agent.clear()
        box.close()
    return 0


def _box_of(where: str, name: str) -> Box:
    """Return the box of this name at `where`: a folder, or an address of the service's API."""
    if "://" not in where:
        return PostBox(Path(where) / name)
    from gavel.backends.nodes.connection import connected_box  # what it imports takes a tenth of an agent's start

    return connected_box(f"{where}/{name}")


def serve_at(where: str, node_folder: str, *, node: str, cluster: str, devices: Devices, box: str = "") -> int:
    """Serve the allocation whose boxes are at `where`, a folder or an address; return the exit code.

    `box`: the name of this agent's own there; "": that of its node.
    """
    place = Place(
        allocation=where.rpartition("/")[2],
        node_folder=Path(node_folder).expanduser(),
        node=node,
        cluster=cluster,
        devices=devices,
    )
    return serve(_box_of(where, box or node), place)
