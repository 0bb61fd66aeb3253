"""A transport where each gang has an allocation of its own, with an agent on each node; orders go by files.

The shared layer knows one agent a node that always answers. Here a node has one for each gang of ours, and none where
nothing of ours runs: for such a node this transport answers itself, that it has no gang. What the cluster has ended
without our word is told as the end of its gangs.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.gang import GangKey
from gavel.backends.nodes.allocation import Allocation, Seat
from gavel.backends.nodes.allocation_control import AllocationControl
from gavel.backends.nodes.code_packs import CodePacks
from gavel.backends.nodes.letters import FilePack, write_epoch
from gavel.backends.nodes.protocol import Answer, CodeAsked, NodeLink, Order, Seen, ShardSeen, ShardWanted, Wanted
from gavel.types import GangExit, GangOutcome, GangState

POLL_S = 0.005
PACKS_KEPT = 8
KILL_S = 30.0  # seconds that an agent has from a signal of the cluster's to its kill


@dataclass(slots=True)
class Clock:
    """What is known of a node's clock: its boottime minus ours, at least, and which boot it is."""

    boot_id: str = ""
    offset_s: float = 0.0

    def take(self, answer: Answer) -> None:
        """Take an answer: its age is unknown, so that the offset is a lower bound."""
        offset_s = answer.node_boottime_s - machine.boottime_s()
        is_same = answer.boot_id == self.boot_id
        self.boot_id, self.offset_s = answer.boot_id, max(offset_s, self.offset_s) if is_same else offset_s


class AllocationLink(NodeLink):
    """Carries orders and answers in files of the control's folder. `calls` counts the calls to the cluster.

    `lease_grace_s`: seconds that a gang has from its lease's end to its own. Raises OSError.
    """

    def __init__(
        self, control: AllocationControl[Any], calls: Counter[str], *, code_store: str, lease_grace_s: float
    ) -> None:
        self._lease_grace_s = lease_grace_s
        self._calls = calls
        self._control = control
        self._packs = CodePacks(code_store, self._stored)
        self._pack_files: list[Path] = []
        self._asked: dict[int, tuple[CodeAsked, ...]] = {}  # id of a seat -> the code that it lacked last
        self._clocks: dict[str, Clock] = {}
        self._epoch = 0
        for folder in ("allocations", "packs"):
            (self._control.folder / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._control.start()

    def exchange(self, wanted: Wanted) -> Seen:
        """Return the state of the cluster once all orders are answered and the groups held, or the time is up."""
        self._fence(wanted.orders.values())
        self._control.want(wanted.groups, self._epoch, is_whole=wanted.is_whole, cordons=wanted.cordons)
        if not self._control.has_listed:
            return Seen(problem=self._control.problem, notes=self._control.notes, calls=dict(self._calls))
        gives_up_at_s = time.monotonic() + wanted.answer_within_s
        if self._control.is_overtaken():
            return self._refused(wanted)
        self._send(wanted)
        while not self._is_done(wanted) and time.monotonic() < gives_up_at_s:
            time.sleep(POLL_S)
        return self._seen(wanted)

    def _refused(self, wanted: Wanted) -> Seen:
        """Return what a service is told that another one has followed: no agent obeys it any more."""
        refused = "a service that started later has taken this cluster over"
        answers = {
            node: Answer(boot_id="", node_boottime_s=machine.boottime_s(), refused=refused) for node in wanted.orders
        }
        return Seen(nodes=self._control.nodes(), answers=answers, is_connected=True)

    def close(self) -> None:
        """End the thread that speaks with the cluster; allocations stay. Closing twice does no harm."""
        self._control.close()
        if self._control.is_alive():
            self._control.join(timeout=1.0)

    # --- orders -----------------------------------------------------------------------------------------------------

    def _fence(self, orders: Iterable[Order]) -> None:
        """Tell agents of our epoch before the first order goes out: they refuse older services from then on."""
        epoch = max((order.epoch for order in orders), default=0)
        if epoch > self._epoch:
            write_epoch(self._control.folder, epoch)
            self._epoch = epoch

    def _live(self, node: str) -> list[tuple[Allocation, Seat]]:
        """Return the agents of the node that are to answer: those that have spoken, and were not told to leave."""
        with self._control.lock:
            allocations = [*self._control.allocations.values()]
        here = [(each, each.seats[node]) for each in allocations if node in each.seats and not each.gone]
        return [(each, seat) for each, seat in here if each.leaving_s is None and seat.reply is not None]

    def _send(self, wanted: Wanted) -> None:
        with self._control.lock:
            allocations = [*self._control.allocations.values()]
        for seat in (seat for each in allocations if not each.gone for seat in each.seats.values()):
            seat.look()
        made: list[CodeAsked] = []
        for node, order in wanted.orders.items():
            with self._control.lock:  # else it could be told to leave, and then not to
                self._order(node, order, wanted.group_of, made)

    def _order(self, node: str, order: Order, group_of: Mapping[GangKey, str], made: list[CodeAsked]) -> None:
        """Give each agent of the node its part of the order."""
        for allocation, seat in self._live(node):
            shards = self._shards_of(allocation, seat, order, group_of)
            capped = tuple(self._capped(each, allocation, node) for each in shards)
            allocation.has_launched |= bool(capped)
            code = self._packs.given(self._asked.pop(id(seat), ()), made)
            seat.write(replace(order, shards=capped, code=code or seat.letter.order.code))

    def _shards_of(
        self, allocation: Allocation, seat: Seat, order: Order, group_of: Mapping[GangKey, str]
    ) -> tuple[ShardWanted, ...]:
        """Return the shards of an order that this agent has, or is to start."""
        has = _keys(seat)
        return tuple(
            each
            for each in order.shards
            if each.key in has or (each.key in group_of and self._control.serving(group_of[each.key]) is allocation)
        )

    def _capped(self, shard: ShardWanted, allocation: Allocation, node: str) -> ShardWanted:
        """Return the shard with a lease that ends before its allocation does, so that the gang saves in time."""
        end_s, clock = allocation.end_boottime_s, self._clocks.get(node)
        if end_s is None or clock is None:
            return shard
        latest_s = end_s + clock.offset_s - self._lease_grace_s - KILL_S
        return replace(shard, lease_node_boottime_s=min(shard.lease_node_boottime_s, latest_s))

    def _stored(self, body: bytes) -> FilePack:
        path = self._control.folder / "packs" / f"{time.monotonic_ns()}"
        path.write_bytes(body)
        self._pack_files.append(path)
        for old in self._pack_files[:-PACKS_KEPT]:
            old.unlink(missing_ok=True)
        self._pack_files = self._pack_files[-PACKS_KEPT:]
        return FilePack(str(path))

    # --- answers ----------------------------------------------------------------------------------------------------

    def _is_done(self, wanted: Wanted) -> bool:
        seats = [seat for node in wanted.orders for _, seat in self._live(node)]
        for seat in seats:
            if not self._has_answered(seat):
                seat.look()
        return all(self._has_answered(seat) or seat.is_late for seat in seats) and self._ready(wanted.await_groups) >= (
            wanted.await_groups
        )

    def _has_answered(self, seat: Seat) -> bool:
        """Whether the agent has answered us: it refuses the letter of a service that we have followed."""
        is_refusal = seat.reply is not None and seat.reply.answer is not None and bool(seat.reply.answer.refused)
        return seat.has_answered and not (is_refusal and seat.letter.order.epoch < self._epoch)

    def _ready(self, names: Iterable[str]) -> frozenset[str]:
        serving = {name: self._control.serving(name) for name in names}
        return frozenset(name for name, each in serving.items() if each is not None and each.is_ready)

    def _seen(self, wanted: Wanted) -> Seen:
        ready = self._ready(group.name for group in wanted.groups)
        nodes, late = self._control.nodes(), set[str]()
        answers: dict[str, Answer] = {}
        listed = {node.node_id for node in nodes}
        for node, order in wanted.orders.items():
            answer = self._answer(node, order, wanted.group_of, late) if node in listed else None
            if answer is not None:
                answers[node] = answer
        silent = "its agent does not answer"
        return Seen(
            nodes=tuple(replace(each, problem=silent) if each.node_id in late else each for each in nodes),
            ready=ready,
            answers=answers,
            is_connected=True,
            problem=self._control.problem,
            notes=self._control.notes,
            calls=dict(self._calls),
            ports=self._ports(wanted.group_of),
            addresses=self._addresses(wanted.group_of),
            delays=dict(self._control.delays),
            placed=self._placed(ready),
        )

    def _placed(self, ready: Iterable[str]) -> dict[str, tuple[tuple[str, str, int], ...]]:
        """Return where those groups are whose nodes the cluster has chosen."""
        serving = {name: self._control.serving(name) for name in ready}
        return {name: each.bundles for name, each in serving.items() if each is not None and each.is_elsewhere}

    def _answer(self, node: str, order: Order, group_of: Mapping[GangKey, str], late: set[str]) -> Answer | None:
        """Return the node's answer: of all its agents together; None while one of them has not answered."""
        live = self._live(node)
        if any(seat.is_late for _, seat in live):
            late.add(node)
        if not all(self._has_answered(seat) and not seat.is_told for _, seat in live):
            return None
        clock = self._clocks.setdefault(node, Clock())
        answers = [seat.reply.answer for _, seat in live if seat.reply is not None and seat.reply.answer is not None]
        for answer in answers:
            clock.take(answer)
        shards = [shard for _, seat in live for shard in self._shards_in(seat)]
        shards += self._ended(node, order, {shard.key for shard in shards}, group_of)
        return Answer(
            boot_id=clock.boot_id,
            node_boottime_s=machine.boottime_s() + clock.offset_s,
            shards=tuple(shards),
            refused=next((each.refused for each in answers if each.refused), ""),
            problem=next((each.problem for each in answers if each.problem), ""),
        )

    def _shards_in(self, seat: Seat) -> tuple[ShardSeen, ...]:
        """Return what an agent says of its shards, once for each letter, since it speaks of what came after that."""
        assert seat.reply is not None and seat.reply.answer is not None, "it has answered"
        seat.is_told = True
        self._asked[id(seat)] = seat.reply.answer.code
        return seat.reply.answer.shards

    def _ended(
        self, node: str, order: Order, reported: Collection[GangKey], group_of: Mapping[GangKey, str]
    ) -> list[ShardSeen]:
        """Return the end of each gang of ours there that no agent speaks for: its allocation is gone."""
        ended = []
        for wanted in order.shards:
            serving = self._control.serving(group_of.get(wanted.key, f"gavel/{wanted.key[0]}/{wanted.key[1]}"))
            is_served = serving is not None and not serving.gone and serving.leaving_s is None
            if wanted.key not in reported and not wanted.forget and not is_served:
                ended.append(_end_of(wanted, serving if serving and node in serving.seats else None, node))
        return ended

    def _ports(self, group_of: Mapping[GangKey, str]) -> dict[tuple[GangKey, str], tuple[int, ...]]:
        """Return the ports that each gang may use on each node: those that its own agent there has reserved."""
        return {
            (key, node): seat.reply.answer.ports
            for key, node, _, seat in self._seats_of(group_of)
            if seat.reply is not None and seat.reply.answer is not None
        }

    def _addresses(self, group_of: Mapping[GangKey, str]) -> dict[tuple[GangKey, str], str]:
        """Return where each gang is reached on each node, where that is not the node's own address."""
        named = {(key, node): each.address_on(node) for key, node, each, _ in self._seats_of(group_of)}
        return {place: address for place, address in named.items() if address}

    def _seats_of(self, group_of: Mapping[GangKey, str]) -> Iterable[tuple[GangKey, str, Allocation, Seat]]:
        for key, group in group_of.items():
            serving = self._control.serving(group)
            if serving is not None:
                yield from ((key, node, serving, seat) for node, seat in serving.seats.items())


def _keys(seat: Seat) -> set[GangKey]:
    """Return the gangs whose shards the agent has."""
    answer = seat.reply.answer if seat.reply is not None else None
    return {shard.key for shard in answer.shards} if answer is not None else set()


def _end_of(wanted: ShardWanted, gone: Allocation | None, node: str) -> ShardSeen:
    """Return the end of a shard whose allocation is gone: what its agent said last, else what the cluster says."""
    seat = gone.seats[node] if gone is not None else None
    if seat is not None:
        seat.look()
    answer = seat.reply.answer if seat is not None and seat.reply is not None else None
    last = next((shard for shard in answer.shards if shard.key == wanted.key), None) if answer is not None else None
    if last is not None and seat is not None and seat.reply is not None:
        last = _after(last, wanted, next((each for each in _ordered(seat) if each.key == wanted.key), None))
    if last is not None and last.state is GangState.ENDED:
        return replace(last, has_more=False, launch=None)
    why = gone.gone if gone is not None else f"node {node} does not have its part"
    is_told = wanted.stop or (gone is not None and gone.is_preempted)
    outcome = GangOutcome.PREEMPTED if is_told else GangOutcome.LOST
    return ShardSeen(
        key=wanted.key,
        state=GangState.ENDED,
        lease_node_boottime_s=wanted.lease_node_boottime_s,
        started_node_boottime_s=last.started_node_boottime_s if last is not None else None,
        exit=GangExit(outcome=outcome, message=why),
        reports=last.reports if last is not None else (),
        log=last.log if last is not None else b"",
        log_offset=last.log_offset if last is not None else wanted.log_offset,
        samples_offset=wanted.samples_offset,
    )


def _ordered(seat: Seat) -> tuple[ShardWanted, ...]:
    """Return the shards of the letter that the agent's reply is about; none if it is about an older letter."""
    return seat.letter.order.shards if seat.has_answered else ()


def _after(last: ShardSeen, wanted: ShardWanted, asked: ShardWanted | None) -> ShardSeen:
    """Return what an agent said, without output that the service has taken already."""
    if asked is not None and (asked.log_offset, asked.samples_offset) == (wanted.log_offset, wanted.samples_offset):
        return last
    return replace(last, log=b"", log_offset=wanted.log_offset, samples=b"", samples_offset=wanted.samples_offset)
