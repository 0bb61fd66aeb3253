"""The state of a gang from its parts, lost parts, and clocks of nodes: without Ray."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import machine
from gavel.backends.nodes.fleet import NodeView
from gavel.backends.nodes.gang import NodesGang, Part, read_gang
from gavel.backends.nodes.lost import LostParts
from gavel.backends.nodes.orders import Forgetting, ports_in_use, shards_wanted
from gavel.backends.nodes.protocol import ListedNode, ShardSeen
from gavel.types import GangExit, GangOutcome, GangState, Report, ReportKind
from gavel.types.rounds import LOST_MARGIN_S
from tests.backends.ray.test_agent import a_launch

EXITED, PREEMPTED, LOST, NOT_STARTED = (
    GangOutcome.EXITED,
    GangOutcome.PREEMPTED,
    GangOutcome.LOST,
    GangOutcome.NOT_STARTED,
)


def a_gang(folder: Path, *nodes: str, lasts_s: float = 60.0, generation: int = 1) -> NodesGang:
    """A gang that runs with one rank on each node."""
    now_s = machine.boottime_s()
    launch = a_launch(folder, generation=generation)
    made = NodesGang(instruction=launch.instruction, directory=folder / "gang", lease_boottime_s=now_s + lasts_s)
    for rank, node in enumerate(nodes):
        mine = a_launch(folder, generation=generation, ranks=(rank,), node_of_rank=nodes)
        made.parts[node] = Part(
            node=node, launch=mine, lease_boottime_s=now_s + lasts_s, lease_node_boottime_s=0.0, is_known=True
        )
    made.state = GangState.RUNNING
    return made


def silent(node: str) -> bool:
    """A silent node may still report."""
    return False


def ended(outcome: GangOutcome, code: int = 0, at_s: float = 1.0, tail: str = "", by: str = "") -> ShardSeen:
    end = GangExit(outcome=outcome, exit_code=code, message=f"{outcome} {code}", log_tail=tail, ended_by=by)
    return ShardSeen(
        key=("j1", 1), state=GangState.ENDED, lease_node_boottime_s=0.0, ended_node_boottime_s=at_s, exit=end
    )


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([ended(EXITED), ended(EXITED)], "exited 0"),
        ([ended(PREEMPTED, 75), ended(PREEMPTED, 75)], "preempted 75"),
        ([ended(EXITED, 9, at_s=2.0), ended(PREEMPTED, 75, at_s=1.0, by="stop")], "exited 9"),
        ([ended(EXITED, 1, at_s=2.0), ended(PREEMPTED, -9, at_s=1.0, by="lease")], "preempted -9"),
        ([ended(EXITED, 1, at_s=1.0), ended(PREEMPTED, -9, at_s=2.0, by="lease")], "preempted -9"),
        ([ended(NOT_STARTED, 127), ended(PREEMPTED, 75, by="lease")], "not_started 127"),
        ([ended(EXITED, 9, at_s=2.0), ended(EXITED, 4, at_s=1.0)], "exited 4"),
        ([ended(EXITED), ended(PREEMPTED, 75)], "preempted 75"),
        ([ended(EXITED), ended(NOT_STARTED, 127)], "not_started 127"),
        ([ended(LOST, at_s=3.0), ended(EXITED, 1, at_s=2.0)], "exited 1"),
        ([ended(EXITED, 75, at_s=1.0), ended(PREEMPTED, 75, at_s=2.0)], "preempted 75"),
        ([ended(EXITED, 75, at_s=1.0), ended(LOST, at_s=2.0)], "lost 0"),
        ([ended(EXITED, 75, at_s=1.0), ended(EXITED, 75, at_s=2.0)], "exited 75"),
    ],
)
def test_the_first_part_that_failed_speaks_for_the_gang(tmp_path: Path, parts: list[ShardSeen], expected: str) -> None:
    gang = a_gang(tmp_path, "n0", "n1")
    for node, seen in zip(("n0", "n1"), parts, strict=True):
        gang.take(node, seen, 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.state is GangState.ENDED
    assert gang.exit is not None
    assert gang.exit.message == expected


@pytest.mark.parametrize("is_restarted", [False, True])
def test_ranks_that_end_since_a_node_was_lost_are_not_to_blame(tmp_path: Path, is_restarted: bool) -> None:
    """Also where the service has not heard of that node since it was started itself."""
    gang = a_gang(tmp_path, "n0", "n1")
    if is_restarted:
        gang.remember(0.0)
        again = read_gang(gang.directory, 0.0)
        assert again is not None
        gang = again
    else:
        gang.take("n1", replace(ended(LOST), state=GangState.RUNNING, exit=None, ended_node_boottime_s=None), 0.0)
    gang.take("n0", ended(EXITED, 1, at_s=machine.boottime_s()), 0.0)
    gang.look(0.3, {"n1": "Ray lost node n1"}, silent, silent)
    assert gang.exit is not None
    assert gang.exit.outcome in (LOST, PREEMPTED)


def test_the_tail_of_rank_zero_is_told_when_the_part_that_failed_said_nothing(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0", "n1")
    gang.take("n0", ended(PREEMPTED, 75, tail="loss is nan"), 0.0)
    gang.take("n1", ended(LOST), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.exit is not None
    assert (gang.exit.outcome, gang.exit.log_tail) == (LOST, "loss is nan")


def test_a_part_that_ends_well_does_not_stop_the_others(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0", "n1")
    gang.take("n0", ended(EXITED), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert (gang.state, gang.is_stopping) == (GangState.RUNNING, False)


def test_a_part_that_fails_stops_the_others(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0", "n1")
    gang.take("n0", ended(EXITED, 1), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert (gang.state, gang.is_stopping) == (GangState.RUNNING, True)


def test_a_part_on_a_lost_node_is_lost_at_once_and_told_as_doubtful(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0", "n1")
    (doubtful,) = gang.look(0.3, {"n1": "Ray lost node n1"}, silent, silent)
    assert doubtful.node == "n1"
    assert gang.is_stopping
    assert gang.look(0.3, {"n1": "Ray lost node n1"}, silent, silent) == []
    gang.take("n0", ended(PREEMPTED, 75), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.exit is not None
    assert (gang.exit.outcome, gang.exit.message) == (LOST, "Ray lost node n1")


def test_a_silent_part_is_lost_only_when_its_last_lease_is_over(tmp_path: Path) -> None:
    late = a_gang(tmp_path, "n0", lasts_s=-1.0)
    assert late.look(5.0, {}, silent, silent) == []
    assert late.state is GangState.RUNNING
    over = a_gang(tmp_path, "n0", lasts_s=-LOST_MARGIN_S - 1.0)
    assert over.look(0.3, {}, silent, silent) == []
    assert over.exit is not None
    assert over.exit.outcome is LOST


def test_a_part_is_not_lost_while_its_node_may_yet_speak(tmp_path: Path) -> None:
    """Ray itself may be gone for longer than a lease; the end of the gang, and its last checkpoint, come later."""
    gang = a_gang(tmp_path, "n0", lasts_s=-100.0)
    assert gang.look(0.3, {}, lambda node: True, silent) == []
    assert gang.state is GangState.RUNNING


def test_a_part_that_no_node_ever_showed_was_not_started(tmp_path: Path) -> None:
    """No attempt of the job is lost with it."""
    gang = a_gang(tmp_path, "n0", lasts_s=-10.0)
    gang.parts["n0"].is_known = False
    gang.look(0.3, {}, silent, silent)
    assert gang.exit is not None
    assert gang.exit.outcome is PREEMPTED


def test_a_gang_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0", "n1")
    gang.parts["n1"].log_offset = 17
    gang.remember(1000.0)
    again = read_gang(gang.directory, 1010.0)
    assert again is not None
    assert again.instruction == gang.instruction
    assert again.state is GangState.RUNNING
    assert {node: part.launch for node, part in again.parts.items()} == {
        node: part.launch for node, part in gang.parts.items()
    }
    assert again.parts["n1"].log_offset == 17
    assert again.lease_boottime_s == pytest.approx(gang.lease_boottime_s - 10.0, abs=0.5)


def test_an_end_before_any_node_had_a_part_is_read_back(tmp_path: Path) -> None:
    gang = a_gang(tmp_path)
    gang.end(GangExit(outcome=NOT_STARTED, message="a secret is gone"))
    gang.remember(0.0)
    again = read_gang(gang.directory, 0.0)
    assert again is not None
    assert (again.state, again.exit) == (GangState.ENDED, gang.exit)


def test_the_end_of_a_gang_that_ran_is_told_by_its_nodes_again_with_its_reports(tmp_path: Path) -> None:
    """A service that died between both knew the end and had stored no report: a finished job failed."""
    gang = a_gang(tmp_path, "n0")
    observed = replace(ended(EXITED), reports=(Report(sequence=1, kind=ReportKind.FINISHED, step=8),))
    gang.take("n0", observed, 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.state is GangState.ENDED
    gang.remember(0.0)
    again = read_gang(gang.directory, 0.0)
    assert again is not None
    again.look(0.3, {}, lambda node: True, silent)
    assert (again.state, again.is_stopping, again.exit) == (GangState.RUNNING, True, None)
    again.take("n0", observed, 0.0)
    again.look(0.3, {}, silent, lambda node: True)
    assert (again.state, again.exit, len(again.fresh)) == (GangState.ENDED, gang.exit, 1)


def adopted(folder: Path, *, lasts_s: float = 60.0) -> NodesGang:
    """A gang of two nodes that another service launched; only `n0` has reported its part."""
    launch = a_launch(folder, ranks=(0,), node_of_rank=("n0", "n1"))
    lease_s = machine.boottime_s() + lasts_s
    gang = NodesGang(instruction=launch.instruction, directory=folder / "gang", lease_boottime_s=lease_s)
    gang.state = GangState.RUNNING
    gang.adopt("n0", launch, lease_s, 0.0)
    return gang


def test_a_gang_that_is_adopted_is_not_over_before_all_of_its_nodes_have_reported(tmp_path: Path) -> None:
    """Else its job would start anew, or fail, while a part of it still runs on a node that is cut off."""
    gang = adopted(tmp_path)
    gang.take("n0", ended(EXITED, 1, at_s=machine.boottime_s()), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.state is GangState.RUNNING
    gang.take("n1", ended(LOST, at_s=machine.boottime_s() + 1.0), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.exit is not None
    assert gang.exit.outcome is LOST


def test_a_part_of_an_adopted_gang_that_its_node_does_not_have_ends_the_gang(tmp_path: Path) -> None:
    """It was never started, and no order of an earlier service is obeyed there any more."""
    gang = adopted(tmp_path)
    gang.look(0.3, {}, silent, lambda node: node == "n1")
    assert gang.is_stopping
    gang.take("n0", ended(PREEMPTED, 75), 0.0)
    gang.look(0.3, {}, silent, lambda node: True)
    assert gang.exit is not None
    assert gang.exit.outcome is PREEMPTED


def test_a_part_of_an_adopted_gang_is_lost_when_its_lease_is_over(tmp_path: Path) -> None:
    gang = adopted(tmp_path, lasts_s=-10.0)
    gang.take("n0", ended(EXITED, 1), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.exit is not None
    assert gang.exit.outcome is LOST


def test_a_part_that_another_service_launched_is_not_launched_again(tmp_path: Path) -> None:
    """Which accelerators it has only its own node knows; also after a restart."""
    gang = adopted(tmp_path)
    gang.remember(0.0)
    again = read_gang(gang.directory, 0.0)
    assert again is not None
    for each in (gang, again):
        view = NodeView(node=ListedNode(node_id="x", name="n1"), workers={}, offset_s=0.0)
        (wanted,) = shards_wanted(view, [each], Forgetting())
        assert (wanted.key, wanted.launch) == (gang.key, None)


def test_a_lease_that_another_service_has_extended_is_not_over_with_ours(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0", lasts_s=-10.0)
    seen = ShardSeen(key=gang.key, state=GangState.RUNNING, lease_node_boottime_s=machine.boottime_s() + 60.0)
    gang.take("n0", seen, 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.state is GangState.RUNNING


def test_what_an_adopted_gang_wrote_before_another_service_had_it_is_not_written_again(tmp_path: Path) -> None:
    outdated = a_gang(tmp_path, "n0", "n1")
    outdated.parts["n1"].log_offset, outdated.parts["n1"].samples_offset = 17, 5
    gang = adopted(tmp_path)
    gang.parts.clear()
    gang.adopt("n0", outdated.parts["n0"].launch, 0.0, 0.0, outdated)
    assert (gang.parts["n1"].log_offset, gang.parts["n1"].samples_offset) == (17, 5)


# --- launches that never arrived --------------------------------------------------------------------------------


def written_down(folder: Path, *, lasts_s: float = 60.0, is_stopping: bool = False) -> NodesGang:
    """A gang of two nodes as a service reads it that the one before left; it died before, or while, it sent it."""
    gang = a_gang(folder, "n0", "n1", lasts_s=lasts_s)
    gang.is_stopping = is_stopping
    gang.remember(0.0)
    again = read_gang(gang.directory, 0.0)
    assert again is not None
    return again


def test_a_launch_that_no_node_has_heard_of_never_arrived(tmp_path: Path) -> None:
    """That is certain once every node of the gang has answered."""
    gang = written_down(tmp_path)
    assert not gang.never_arrived(silent) and not gang.never_arrived(lambda node: node == "n0")
    assert gang.never_arrived(lambda node: True)


def test_a_launch_of_which_one_node_has_its_part_has_arrived(tmp_path: Path) -> None:
    gang = written_down(tmp_path)
    gang.take("n1", ended(EXITED), 0.0)
    assert not gang.never_arrived(lambda node: True)


@pytest.mark.parametrize("over", [{"lasts_s": -1.0}, {"is_stopping": True}])
def test_a_launch_that_is_over_is_not_made_again(tmp_path: Path, over: dict[str, Any]) -> None:
    assert not written_down(tmp_path, **over).never_arrived(lambda node: True)


def test_neither_own_launches_nor_those_of_another_service_are_taken_for_lost_on_their_way(tmp_path: Path) -> None:
    """Of its own launch a service has had no answer yet; a part that it adopted has been on a node."""
    own = a_gang(tmp_path, "n0", "n1")
    for part in own.parts.values():
        part.is_known = False
    other = adopted(tmp_path)
    other.remember(0.0)
    again = read_gang(other.directory, 0.0)
    assert again is not None
    for each in (own, other, again):
        assert not each.never_arrived(lambda node: True)


def test_a_doubtful_gang_is_not_launched_by_the_orders_to_its_nodes(tmp_path: Path) -> None:
    """Else one node could start its part while the scheduler launches the whole gang again."""
    gang = written_down(tmp_path)
    view = NodeView(node=ListedNode(node_id="x", name="n1"), workers={}, offset_s=0.0)
    assert shards_wanted(view, [gang], Forgetting())[0].launch is None
    gang.take("n0", replace(ended(EXITED), state=GangState.RUNNING, exit=None, ended_node_boottime_s=None), 0.0)
    assert shards_wanted(view, [gang], Forgetting())[0].launch == gang.parts["n1"].launch


# --- ports ------------------------------------------------------------------------------------------------------


def test_a_port_has_one_gang_until_its_node_has_forgotten_it(tmp_path: Path) -> None:
    """A node that has not started a gang yet offers its ports still; also to a service that was started anew."""
    gang = a_gang(tmp_path, "n0", "n1")
    gang.parts["n0"].launch = replace(gang.parts["n0"].launch, ports=(10, 11))
    gang.remember(0.0)
    again = read_gang(gang.directory, 0.0)
    assert again is not None
    forgetting = Forgetting()
    assert ports_in_use("n0", [again], forgetting) == {10, 11}
    assert ports_in_use("n1", [again], forgetting) == set()
    assert ports_in_use("n0", [], forgetting) == set()
    forgetting.add(gang)
    forgetting.heard("n1", [])
    assert (ports_in_use("n0", [], forgetting), forgetting.nodes()) == ({10, 11}, {"n0"})
    forgetting.heard("n0", [])
    assert ports_in_use("n0", [], forgetting) == set() and gang.key not in forgetting


# --- lost parts -------------------------------------------------------------------------------------------------


def test_a_newer_gang_waits_for_a_lost_part_until_its_lease_is_over(tmp_path: Path) -> None:
    lost = LostParts(tmp_path, 0.0)
    lost.add(("j1", 4), "n1", machine.boottime_s() + 60, 0.0)
    assert lost.may_run(("j1", 5)) == "n1"
    assert lost.may_run(("j1", 4)) == ""
    assert lost.may_run(("j2", 5)) == ""
    lost.add(("j3", 1), "n1", machine.boottime_s() - 1, 0.0)
    assert lost.may_run(("j3", 2)) == ""


def test_a_node_that_is_back_says_what_it_still_runs(tmp_path: Path) -> None:
    lost = LostParts(tmp_path, 0.0)
    for job_id in ("j1", "j2"):
        lost.add((job_id, 1), "n1", machine.boottime_s() + 60, 0.0)
    lost.heard("n2", [], 0.0)
    assert lost.may_run(("j1", 2)) == "n1"
    lost.heard("n1", [("j2", 1)], 0.0)
    assert (lost.may_run(("j1", 2)), lost.may_run(("j2", 2))) == ("", "n1")


def test_a_restarted_service_knows_which_parts_are_lost(tmp_path: Path) -> None:
    lost = LostParts(tmp_path, 1000.0)
    lost.add(("j1", 1), "n1", machine.boottime_s() + 60, 1000.0)
    assert LostParts(tmp_path, 1030.0).may_run(("j1", 2)) == "n1"
    assert LostParts(tmp_path, 1061.0).may_run(("j1", 2)) == ""
