"""By whose clock the leases of an order are, and what becomes of parts that were given up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gavel.backends.nodes.fleet import NodeView
from gavel.backends.nodes.orders import Forgetting, shards_wanted, to_node
from gavel.backends.nodes.protocol import ListedNode, Order
from tests.backends.ray.test_gang import EXITED, a_gang, ended, silent


def test_a_launch_that_a_reboot_has_lost_is_repeated_with_its_lease_by_the_new_clock(tmp_path: Path) -> None:
    """Until the node has answered, nobody knows what its clock shows: the order is of no boot, and takes no lease."""
    gang = a_gang(tmp_path, "n0")
    gang.parts["n0"] = replace(gang.parts["n0"], is_known=False, lease_boottime_s=0.0, boot_id="one")
    listed = ListedNode(node_id="x", name="n0")

    def sent(**over: Any) -> tuple[str, float]:
        order = to_node(Order(epoch=1), NodeView(node=listed, workers={}, **over), [gang], Forgetting())
        assert order.shards[0].launch is not None
        return order.boot_id, order.shards[0].lease_node_boottime_s

    ends_s = gang.lease_boottime_s
    assert sent(offset_s=2_000.0, boot_id="one") == ("one", ends_s + 2_000.0)
    assert sent()[0] == ""
    assert sent(offset_s=-5.0, boot_id="two") == ("two", ends_s - 5.0)


def test_a_part_that_was_given_up_is_stopped_where_it_turns_up(tmp_path: Path) -> None:
    """Its launch may still be on its way; the gang is over, and the next one of its job may have started."""
    gang = a_gang(tmp_path, "n0", "n1")
    gang.look(0.3, {"n0": "Ray lost node n0"}, silent, silent)
    view = NodeView(node=ListedNode(node_id="x", name="n0"), workers={}, offset_s=0.0)
    assert shards_wanted(view, [gang], Forgetting())[0].stop
    gang.take("n1", ended(EXITED), 0.0)
    other = NodeView(node=ListedNode(node_id="y", name="n1"), workers={}, offset_s=0.0)
    assert not shards_wanted(other, [gang], Forgetting())[0].stop


def test_a_lease_that_was_sent_before_any_agent_had_told_the_boot_of_its_node_is_sent_anew(tmp_path: Path) -> None:
    """Where each gang has agents of its own, the first order goes out before the first answer."""
    gang = a_gang(tmp_path, "n0")
    gang.parts["n0"] = replace(gang.parts["n0"], is_known=False, lease_boottime_s=0.0, boot_id="")
    for boot_id, offset_s in (("", 0.0), ("one", 700.0)):
        view = NodeView(node=ListedNode(node_id="x", name="n0"), workers={}, offset_s=offset_s, boot_id=boot_id)
        (wanted,) = shards_wanted(view, [gang], Forgetting())
        assert wanted.lease_node_boottime_s == gang.lease_boottime_s + offset_s
