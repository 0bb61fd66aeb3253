"""Orders over connections that drop, delay, double and reorder, from services of which a later one takes over."""

import pickle
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gavel.backends.nodes.allocation import Allocation, Seat
from gavel.backends.nodes.connection import Access, Newest
from gavel.backends.nodes.gang_agent import Devices, GangAgent, Place
from gavel.backends.nodes.letters import Letter, Reply, write_epoch
from gavel.backends.nodes.protocol import Group, Order
from gavel.backends.nodes.relay import AgentFiles, Parts, made_key, parts_of
from gavel.backends.nodes.tunnels import TunnelWanted

NODE = "n0"
GROUP = Group(name="gavel/j1/1", bundles=((NODE, "gpu", 1),))


class LossyBox:
    """An agent's side: what it is told comes by `heard`, and what it answers is held until a test lets it through."""

    def __init__(self) -> None:
        self.heard = Newest(Access(url="http://127.0.0.1:9", key=""))
        self.held: list[bytes] = []
        self.last_reply = b""  # what a new connection brings

    def letter(self) -> Letter | None:
        return self.heard.letter

    def epoch(self) -> int:
        return self.heard.epoch

    def tunnels(self) -> tuple[TunnelWanted, ...]:
        return self.heard.tunnels

    def answer(self, reply: Reply) -> None:
        self.last_reply = pickle.dumps(reply)
        self.held.append(self.last_reply)

    def is_gone(self) -> bool:
        return False

    def close(self) -> None:
        pass


class Lossy(RuleBasedStateMachine):
    """One real agent; two services on one folder, of which the second commands once it has written its epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.orders = Path(self.folder.name) / "orders"
        self.held: list[bytes] = []  # on their way to the agent
        self.epochs = [1000]
        self.obeyed: list[int] = []
        self.wanted_s = 1.0

    @initialize()
    def begin(self) -> None:
        write_epoch(self.orders, self.epochs[0])
        made = Allocation.make(self.orders / "allocations", GROUP, self.epochs[0])
        self.key = made_key(made.folder)
        self.seats: list[Seat] = [made.seats[NODE]]
        self.files = AgentFiles(self.orders, made.folder.name, NODE)
        self.box = LossyBox()
        place = Place(
            allocation=made.folder.name,
            node_folder=Path(self.folder.name) / "nodes",
            node=NODE,
            cluster="a cluster",
            devices=Devices([], lambda _: ""),
        )
        self.agent = GangAgent(self.box, place)
        exchange = self.agent._agent.exchange

        def watched(order: Order) -> Any:
            answer = exchange(order)
            self.obeyed += [] if answer.refused else [order.epoch]
            return answer

        self.agent._agent.exchange = watched  # type: ignore[method-assign]

    def order(self, service: int) -> Order:
        self.wanted_s += 1.0
        return Order(epoch=self.epochs[service], keep_code_s=self.wanted_s)  # each differs from those before

    @rule(old=st.booleans())
    def a_service_writes(self, old: bool) -> None:
        service = 0 if old else len(self.seats) - 1
        self.seats[service].write(self.order(service))

    @precondition(lambda self: len(self.seats) == 1)
    @rule()
    def another_takes_over(self) -> None:
        adopted = Allocation.read(self.orders / "allocations" / self.files.allocation)
        assert adopted is not None
        self.epochs.append(self.epochs[0] + 1000)
        write_epoch(self.orders, self.epochs[1])
        self.seats.append(adopted.seats[NODE])

    @rule()
    def the_relay_reads(self) -> None:
        message = self.files.message()
        self.held += [message] if message is not None else []

    @rule(data=st.data(), stays=st.booleans())
    def a_letter_arrives(self, data: st.DataObject, stays: bool) -> None:
        """In any order, and again if it `stays`."""
        if self.held:
            index = data.draw(st.integers(0, len(self.held) - 1))
            before = self.box.letter()
            self.box.heard.take(self.held[index] if stays else self.held.pop(index))
            newest = self.box.letter()
            assert newest is not None and (before is None or newest.number >= before.number)

    @rule(data=st.data(), stays=st.booleans())
    def a_reply_arrives(self, data: st.DataObject, stays: bool) -> None:
        if self.box.held:
            index = data.draw(st.integers(0, len(self.box.held) - 1))
            self.files.take(self.box.held[index] if stays else self.box.held.pop(index))

    @rule()
    def all_on_its_way_is_lost(self) -> None:
        self.held.clear()
        self.box.held.clear()

    @rule()
    def the_agent_obeys(self) -> None:
        assert not self.agent.turn()

    @rule()
    def services_look(self) -> None:
        for seat in self.seats:
            before = seat.reply
            seat.look()
            assert before is None or (seat.reply is not None and seat.reply.beat >= before.beat)

    @rule()
    def quiet(self) -> None:
        """Once nothing is lost any more, the service that commands has an answer to its last letter, and no refusal."""
        seat = self.seats[-1]
        if seat.letter.order.epoch < self.epochs[-1] or seat.box.letter() != seat.letter:
            seat.write(self.order(len(self.seats) - 1))
        message = self.files.message()
        assert message is not None
        self.box.heard.take(message)
        assert not self.agent.turn()
        self.files.take(self.box.last_reply)
        seat.look()
        assert seat.has_answered
        assert seat.reply is not None and seat.reply.answer is not None and not seat.reply.answer.refused

    @invariant()
    def no_older_service_is_obeyed_after_a_later_one(self) -> None:
        assert self.obeyed == sorted(self.obeyed)

    def teardown(self) -> None:
        if hasattr(self, "agent"):
            self.agent.clear()
        self.folder.cleanup()


TestLossy = Lossy.TestCase
TestLossy.settings = settings(deadline=None)


def test_an_agent_obeys_a_later_service_after_the_last_word_of_an_earlier_one(tmp_path: Path) -> None:
    """A service that was paused while another one took over writes once more; both count from the same letter."""
    made = Allocation.make(tmp_path / "allocations", GROUP, epoch=1000)
    adopted = Allocation.read(made.folder)
    assert adopted is not None
    newest = Newest(Access(url="http://127.0.0.1:9", key=""))
    files = AgentFiles(tmp_path, made.folder.name, NODE)
    for allocation, epoch in ((made, 1000), (adopted, 2000)):
        allocation.seats[NODE].write(Order(epoch=epoch, keep_code_s=1.0))
        newest.take(files.message() or b"")
        assert newest.letter == allocation.seats[NODE].letter


def test_a_reply_comes_whole_however_large_it_is() -> None:
    for size in (0, 1, (256 << 10) - 1, 256 << 10, 600_000):
        reply, parts = bytes(size), Parts()
        taken = [parts.take(each) for each in parts_of(reply)]
        assert (taken[-1], {*taken[:-1]} <= {None}) == (reply, True)
