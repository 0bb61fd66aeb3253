"""What a service hears of agents that an earlier service has begun to command."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gavel.backends.nodes.allocation import Allocation
from gavel.backends.nodes.allocation_control import AllocationControl
from gavel.backends.nodes.allocation_link import AllocationLink
from gavel.backends.nodes.letters import PostBox, Reply
from gavel.backends.nodes.protocol import Answer, Group, ListedNode, Order, Wanted

GROUP = Group(name="gavel/j1/1", bundles=(("n0", "gpu", 1),))


class OneNode(AllocationControl[Allocation]):
    """A cluster of one node, on which an agent speaks once somebody asks for its allocation."""

    notes = ()  # type: ignore[assignment]

    def __init__(self, folder: Path, first_words: Reply) -> None:
        super().__init__(folder, Allocation, "test", "")
        self.has_listed = True
        self._first_words = first_words

    def start(self) -> None:
        """Nothing: the cluster does not change."""

    def _listed(self) -> Iterable[tuple[ListedNode, bool]]:
        return [(ListedNode(node_id="n0", name="n0"), False)]

    def serving(self, group: str) -> Allocation | None:
        (made,) = self.allocations.values()
        if made.seats["n0"].reply is None:
            made.seats["n0"].box.answer(self._first_words)
        return made


def test_a_refusal_of_an_earlier_service_s_letter_is_none_of_the_service_that_followed(tmp_path: Path) -> None:
    """1 an allocation of a service that died, 2 its agent starts late and knows of the next one, 3 that one asks."""
    refused = Answer(boot_id="b", node_boottime_s=0.0, refused="a service that started later has taken this node over")
    control = OneNode(tmp_path, Reply(number=1, beat=1, answer=refused, node="n0"))
    control.allocations["a"] = made = Allocation.make(tmp_path / "allocations", GROUP, epoch=1)
    link = AllocationLink(control, Counter(), code_store="", lease_grace_s=1.0)
    wanted = Wanted(
        groups=(GROUP,), orders={"n0": Order(epoch=2)}, await_groups=frozenset({GROUP.name}), answer_within_s=0.0
    )
    assert link.exchange(wanted).answers == {}
    link.exchange(wanted)
    letter = PostBox(made.folder / "n0").letter()
    assert letter is not None and letter.order.epoch == 2
    made.seats["n0"].box.answer(Reply(number=letter.number, beat=2, answer=refused, node="n0"))
    (answer,) = link.exchange(wanted).answers.values()
    assert answer.refused


def test_a_node_that_is_not_asked_says_nothing_of_what_runs_there(tmp_path: Path) -> None:
    """An answer without shards would say that nothing runs there, also where a lost gang runs on."""
    first_words = Reply(number=1, beat=1, answer=Answer(boot_id="b", node_boottime_s=0.0), node="n0")
    control = OneNode(tmp_path, first_words)
    control.allocations["a"] = Allocation.make(tmp_path / "allocations", GROUP, epoch=1)
    link = AllocationLink(control, Counter(), code_store="", lease_grace_s=1.0)
    awaited = Wanted(groups=(GROUP,), await_groups=frozenset({GROUP.name}), answer_within_s=0.0)
    link.exchange(awaited)
    seen = link.exchange(awaited)
    assert seen.ready == {GROUP.name} and seen.answers == {}
