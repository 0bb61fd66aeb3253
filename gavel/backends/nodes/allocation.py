"""One gang's allocation as the service knows it: its folder, and the files by which it speaks with its agents."""

import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gavel.backends import machine
from gavel.backends.nodes.letters import Letter, PostBox, Reply
from gavel.backends.nodes.protocol import Group, Order

RECORD = "allocation.json"
LATE_S = 10.0  # seconds without a sign of life of an agent


@dataclass(slots=True)
class Seat:
    """One agent: the last letter to it, and the newest reply. `is_told`: that reply was handed on already."""

    box: PostBox
    letter: Letter
    reply: Reply | None = None
    heard_s: float = 0.0  # monotonic, of the last change of its reply
    is_told: bool = False

    def write(self, order: Order, *, leaves: bool = False) -> None:
        """Give the agent this order, unless it is the one that it has. Raises OSError."""
        if order == self.letter.order and leaves == self.letter.leaves:
            self.is_told = False
            return
        # Epochs of services lie far apart, so that no two services ever give the same number.
        number = max(self.letter.number + 1, order.epoch)
        self.letter = Letter(number=number, order=order, leaves=leaves)
        self.is_told = False
        self.box.send(self.letter)

    def look(self) -> None:
        """Read the newest reply."""
        reply = self.box.reply()
        is_older = reply is not None and self.reply is not None and reply.beat < self.reply.beat
        if reply is not None and reply != self.reply and not is_older:
            self.reply, self.heard_s = reply, time.monotonic()

    @property
    def node(self) -> str:
        """Return the node on which its agent says it is; "" if it has not spoken."""
        return getattr(self.reply, "node", "")  # a reply of an agent of an earlier version does not say it

    @property
    def is_late(self) -> bool:
        """Return True if it gives no sign of life."""
        return time.monotonic() - self.heard_s > LATE_S

    @property
    def has_answered(self) -> bool:
        """Return True once the reply is to the last letter."""
        return self.reply is not None and self.reply.answer is not None and self.reply.number == self.letter.number


@dataclass(slots=True, kw_only=True)
class Allocation:
    """What a cluster has given one gang, an agent on each of its nodes. What the cluster calls it, a backend adds."""

    name: str
    folder: Path
    bundles: tuple[tuple[str, str, int], ...]
    seats: dict[str, Seat]
    end_boottime_s: float | None = None  # when the cluster ends it, in our boottime
    has_launched: bool = False
    gone: str = ""  # why the cluster has ended it; "": it has not
    leaving_s: float | None = None  # monotonic, since when it is unwanted
    made_s: float = field(default_factory=time.monotonic)

    @classmethod
    def make(cls, parent: Path, group: Group, epoch: int) -> Self:
        """Return a new one, its files written. Raises OSError."""
        _, job_id, generation = group.name.split("/")
        folder = parent / f"{job_id}.{generation}.{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700, parents=True)
        first = Letter(number=1, order=Order(epoch=epoch))
        seats = {}
        for node, _, _ in group.bundles:
            seats[node] = Seat(PostBox(folder / node), first)
            seats[node].box.make(first)
        machine.write_json(str(folder / RECORD), {"name": group.name, "bundles": group.bundles})
        return cls(name=group.name, folder=folder, bundles=group.bundles, seats=seats)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the one that an earlier service made there; None if its files are not whole."""
        try:
            record = machine.read_object(folder / RECORD) or {}
            bundles = tuple((str(node), str(resource), int(units)) for node, resource, units in record["bundles"])
            name = str(record["name"])
        except (KeyError, TypeError, ValueError):
            return None
        seats = {}
        for node, _, _ in bundles:
            box = PostBox(folder / node)
            letter = box.letter()
            if letter is None:
                return None
            seats[node] = Seat(box, letter)
            seats[node].look()
        made = cls(name=name, folder=folder, bundles=bundles, seats=seats)
        made._listen()
        made.has_launched = any(seat.letter.number > 1 for seat in seats.values())
        return made

    @property
    def is_ready(self) -> bool:
        """Return True once every agent has spoken."""
        if self.gone:
            return False
        self._listen()
        return all(seat.reply is not None and seat.reply.answer is not None for seat in self.seats.values())

    def _listen(self) -> None:
        """Look for the first words of agents that have not spoken; they outlast the agent that said them."""
        for seat in self.seats.values():
            if seat.reply is None:
                seat.look()
        self._settle()

    def _settle(self) -> None:
        """Name seats and bundles by the nodes on which the agents are, once all have spoken: a cluster may choose."""
        seats = [*self.seats.values()]
        node_of = {seat.box.folder.name: seat.node for seat in seats}
        if all(node_of.values()) and self.seats.keys() != {*node_of.values()}:
            self.bundles = tuple((node_of.get(name, name), resource, units) for name, resource, units in self.bundles)
            self.seats = {seat.node: seat for seat in seats}

    @property
    def problem(self) -> str:
        """Return why an agent cannot work; "" if all can, as far as is known."""
        self._listen()
        return next((seat.reply.problem for seat in self.seats.values() if seat.reply and seat.reply.problem), "")

    @property
    def places(self) -> Iterable[str]:
        """Return the nodes that are not tried again for a while if it does not start."""
        return self.seats

    @property
    def is_held(self) -> bool:
        """Return True if the cluster counts its resources as used."""
        raise NotImplementedError

    @property
    def is_elsewhere(self) -> bool:
        """Return True if the cluster, and not the plan, has chosen its nodes."""
        return any(name != seat.box.folder.name for name, seat in self.seats.items())

    @property
    def is_preempted(self) -> bool:
        """Return True if it has gone by the will of the cluster and not by a failure."""
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        """Return True once it is unwanted and nothing of it is left in the cluster."""
        raise NotImplementedError

    def address_on(self, node: str) -> str:
        """Return where its ranks on the node are reached from the other nodes; "": at the node's own address."""
        return ""

    def leave(self) -> None:
        """Ask its agents to end everything and free their nodes. Raises OSError."""
        self.leaving_s = time.monotonic()
        for seat in self.seats.values():
            epoch = seat.letter.order.epoch
            seat.write(Order(epoch=epoch), leaves=True)

    def serves(self, group: str) -> bool:
        """Return True if it was made for the group, or a gang of that name runs in it: its partner has ended."""
        if self.name == group:
            return True
        answers = [seat.reply.answer for seat in self.seats.values() if seat.reply is not None and seat.reply.answer]
        return any(f"gavel/{seen.key[0]}/{seen.key[1]}" == group for answer in answers for seen in answer.shards)

    def remove(self) -> None:
        """Delete its folder; it is gone at once, though a connection may be writing a reply into it."""
        removed = self.folder.parents[1] / "removed"
        with suppress(OSError):
            removed.mkdir(mode=0o700, exist_ok=True)
            self.folder.rename(removed / self.folder.name)
        shutil.rmtree(removed, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # if it could not be moved
