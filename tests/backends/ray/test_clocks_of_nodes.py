"""What a service takes the boottime of a node to be, seen through answers that may be slow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.backends import machine
from gavel.backends.nodes.fleet import NodeView
from gavel.backends.nodes.protocol import Answer, ListedNode


@given(
    ahead_s=st.floats(-1e6, 1e6),
    back_s=st.lists(st.floats(0, 2), min_size=1, max_size=20),
)
def test_a_nodes_clock_is_never_thought_further_ahead_than_it_is(ahead_s: float, back_s: list[float]) -> None:
    """So a lease sent in the node's clock never ends later there than here, however slow an answer was."""
    view = NodeView(node=ListedNode(node_id="x", name="n1"), workers={})
    for each_s in back_s:
        view.take(Answer(boot_id="b", node_boottime_s=machine.boottime_s() - each_s + ahead_s))
        assert view.offset_s is not None
        assert view.offset_s <= ahead_s + 1e-6
    best_s = min(back_s)
    assert view.offset_s is not None
    assert view.offset_s >= ahead_s - best_s - 0.5


@pytest.mark.parametrize("rate", [0.98, 1.02])
def test_a_clock_that_drifts_is_not_taken_for_what_it_was_long_ago(rate: float) -> None:
    """Else leases on a node whose clock goes slower would end later and later, by more than any margin."""
    view = NodeView(node=ListedNode(node_id="x", name="n1"), workers={})
    for now_s in range(0, 3600, 2):
        with machine.boottime_from(lambda at_s=now_s: float(at_s)):
            view.take(Answer(boot_id="b", node_boottime_s=1000.0 + rate * now_s))
        assert view.offset_s is not None
        assert abs(view.offset_s - (1000.0 + (rate - 1.0) * now_s)) <= 0.5


def test_another_boot_begins_another_clock() -> None:
    view = NodeView(node=ListedNode(node_id="x", name="n1"), workers={})
    view.take(Answer(boot_id="one", node_boottime_s=machine.boottime_s() + 500))
    view.take(Answer(boot_id="two", node_boottime_s=machine.boottime_s() - 500))
    assert view.offset_s == pytest.approx(-500, abs=0.5)
