"""When a gang over several nodes ends, and how, from the ends of its parts."""

from pathlib import Path
from typing import Any

import pytest

from gavel.backends.nodes.gang import UNTOLD_LIMIT_S
from gavel.types import GangExit, GangOutcome
from gavel.types.rounds import LOST_MARGIN_S
from tests.backends.boottimes import Boottime
from tests.backends.test_nodes_gang import (
    ENDED,
    NODES,
    RUNNING,
    WAITING,
    a_gang,
    a_part,
    ended,
    everybody,
    nobody,
    shown,
)


def test_nothing_is_concluded_of_a_gang_that_waits_or_has_ended(tmp_path: Path) -> None:
    for state in (WAITING, ENDED):
        gang = a_gang(tmp_path, *NODES, state=state)
        assert gang.look(0.5, {"n0": "gone"}, nobody, nobody) == []
        assert gang.parts == a_gang(tmp_path, *NODES).parts


@pytest.mark.parametrize(
    ("now_s", "may_speak", "is_lost"),
    [
        (160.5 + LOST_MARGIN_S, nobody, False),
        (160.6 + LOST_MARGIN_S, nobody, True),
        (160.6 + LOST_MARGIN_S, everybody, False),
        (160.6 + LOST_MARGIN_S, lambda node: node == "n0", False),
    ],
)
def test_a_silent_part_is_lost_after_lease_grace_and_margin(
    tmp_path: Path, boottime: Boottime, now_s: float, may_speak: Any, is_lost: bool
) -> None:
    boottime.now_s = now_s
    gang = a_gang(tmp_path, "n0")
    assert gang.look(0.5, {}, may_speak, nobody) == []
    exit_ = GangExit(outcome=GangOutcome.LOST, message="node n0 did not report how it ended")
    assert (gang.state, gang.exit) == ((ENDED, exit_) if is_lost else (RUNNING, None))


def test_a_part_on_a_lost_node_is_doubtful_only_while_it_may_still_run(tmp_path: Path, boottime: Boottime) -> None:
    for now_s, doubtful in ((150.0, ["n1"]), (200.0, [])):
        boottime.now_s = now_s
        gang = a_gang(tmp_path, *NODES)
        assert [part.node for part in gang.look(0.5, {"n1": "lost node n1"}, everybody, nobody)] == doubtful
        assert gang.parts["n1"].exit == GangExit(outcome=GangOutcome.LOST, message="lost node n1")
        assert (gang.state, gang.is_stopping, gang.reason) == (RUNNING, True, "another part of the gang failed")


def test_all_lost_parts_are_told_and_the_reason_of_a_stop_before_stays(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, *NODES, is_stopping=True, reason="drained")
    lost = gang.look(0.5, {"n0": "lost node n0", "n1": "lost node n1"}, nobody, nobody)
    assert [part.node for part in lost] == ["n0", "n1"]
    assert (gang.state, gang.reason, gang.ended_boottime_s) == (ENDED, "drained", 100.0)


@pytest.mark.parametrize(
    ("gone", "now_s", "message"),
    [
        ({}, 90.0 + UNTOLD_LIMIT_S, None),
        ({}, 90.1 + UNTOLD_LIMIT_S, "node n0 did not hand over all that its gang left"),
        ({"n0": "lost node n0"}, 100.0, "lost node n0"),
    ],
)
def test_a_part_that_has_ended_may_take_an_hour_to_hand_over_the_rest(
    tmp_path: Path, boottime: Boottime, gone: dict[str, str], now_s: float, message: str | None
) -> None:
    gang = a_gang(tmp_path, "n0")
    gang.take("n0", ended(GangOutcome.EXITED, has_more=True), 0.0)
    boottime.now_s = now_s
    assert gang.look(0.5, gone, nobody, nobody) == []
    exit_ = None if message is None else GangExit(outcome=GangOutcome.LOST, message=message)
    assert (gang.exit, gang.ended_boottime_s) == (exit_, 90.0 if message else None)


def test_a_part_that_is_over_stays_as_it_is_when_its_node_is_lost(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, *NODES)
    gang.take("n0", ended(GangOutcome.EXITED), 0.0)
    assert gang.look(0.5, {"n0": "lost node n0"}, nobody, nobody) == []
    assert (gang.parts["n0"].exit, gang.is_stopping) == (GangExit(outcome=GangOutcome.EXITED), False)


def test_only_a_foreign_part_is_lost_when_its_node_answers_without_it(tmp_path: Path, boottime: Boottime) -> None:
    for over, message in [
        ({"is_foreign": True, "is_known": False}, "node n1 does not have its part"),
        ({"is_foreign": True}, None),
        ({"is_known": False}, None),
    ]:
        gang = a_gang(tmp_path, *NODES)
        gang.parts["n1"] = a_part(tmp_path, "n1", **over)
        assert gang.look(0.5, {}, nobody, lambda node: node == "n1") == []
        exit_ = gang.parts["n1"].exit
        assert (exit_ and exit_.message) == message


def test_a_gang_ends_when_its_last_part_does_and_with_the_tail_of_rank_zero(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, "n1", "n0")
    for node, at_s, tail in (("n1", 80.0, "of rank 0"), ("n0", 95.0, "")):
        exit_ = GangExit(outcome=GangOutcome.EXITED, exit_code=int(node == "n0"), log_tail=tail)
        gang.take(node, shown(ENDED, exit=exit_, ended_node_boottime_s=at_s), 0.0)
    gang.look(0.5, {}, nobody, nobody)
    assert gang.exit == GangExit(outcome=GangOutcome.EXITED, exit_code=1, log_tail="of rank 0")
    assert gang.ended_boottime_s == 95.0


def test_of_parts_that_all_ended_well_that_of_rank_zero_speaks(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n1", "n0")
    for node in ("n0", "n1"):
        exit_ = GangExit(outcome=GangOutcome.EXITED, message=node, log_tail=f"of {node}")
        gang.take(node, shown(ENDED, exit=exit_, ended_node_boottime_s=90.0), 0.0)
    gang.parts = {node: gang.parts[node] for node in ("n0", "n1")}
    gang.look(0.5, {}, nobody, nobody)
    assert gang.exit == GangExit(outcome=GangOutcome.EXITED, message="n1", log_tail="of n1")


def test_ranks_that_saved_have_failed_first_if_no_other_had_to_stop(tmp_path: Path) -> None:
    """Nobody asked them to: a program that ends with that code by itself is the cause, and not what came after it."""
    gang = a_gang(tmp_path, *NODES)
    for node, code, at_s in (("n0", 75, 80.0), ("n1", 9, 95.0)):
        exit_ = GangExit(outcome=GangOutcome.EXITED, exit_code=code)
        gang.take(node, shown(ENDED, exit=exit_, ended_node_boottime_s=at_s), 0.0)
    gang.look(0.5, {}, nobody, nobody)
    assert gang.exit == GangExit(outcome=GangOutcome.EXITED, exit_code=75)
