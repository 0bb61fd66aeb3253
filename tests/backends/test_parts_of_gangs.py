"""The part of a gang on one node: what its reports change, and how it is given up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.nodes.gang import UNTOLD_LIMIT_S, Part
from gavel.backends.nodes.protocol import ShardSeen
from gavel.types import GangExit, GangOutcome, GangState, Load, Report, ReportKind
from tests.backends.boottimes import Boottime
from tests.backends.ray.test_agent import a_launch

LOST = GangExit(outcome=GangOutcome.LOST, message="gone")
DONE = GangExit(outcome=GangOutcome.EXITED)


def a_part(folder: Path, **over: Any) -> Part:
    """A part that was sent a lease until 160 (of its node: 1160) and of which nothing was heard."""
    given = {"launch": a_launch(folder), "lease_boottime_s": 160.0, "lease_node_boottime_s": 1160.0}
    return Part(**{"node": "n1", **given, **over})


def shown(state: GangState, **over: Any) -> ShardSeen:
    return ShardSeen(**{"key": ("j1", 1), "state": state, "lease_node_boottime_s": 1160.0, **over})


def reports(*sequences: int) -> tuple[Report, ...]:
    return tuple(Report(sequence=each, kind=ReportKind.PROGRESS, step=each) for each in sequences)


def test_all_that_a_node_reports_of_a_part_that_runs_is_kept(tmp_path: Path, boottime: Boottime) -> None:
    part, load = a_part(tmp_path), Load(requests_per_s=3.0)
    part.take(
        shown(
            GangState.RUNNING,
            started_node_boottime_s=1090.0,
            is_ready=True,
            endpoint="h:80",
            load=load,
            has_more=True,
            reports=reports(4, 7, 5),
            log_offset=11,
            samples_offset=12,
        ),
        1000.0,
    )
    assert part == a_part(
        tmp_path,
        is_known=True,
        state=GangState.RUNNING,
        started_boottime_s=90.0,
        live_boottime_s=100.0,
        is_ready=True,
        endpoint="h:80",
        load=load,
        has_more=True,
        reports_after=7,
        log_offset=11,
        samples_offset=12,
    )


def test_start_and_end_stay_as_they_were_first_told(tmp_path: Path, boottime: Boottime) -> None:
    """Later answers bound the offset of the clocks better, but a start that moves would be another one."""
    part = a_part(tmp_path)
    part.take(shown(GangState.RUNNING, started_node_boottime_s=1090.0), 1000.0)
    boottime.now_s = 120.0
    ended = shown(GangState.ENDED, started_node_boottime_s=1090.0, ended_node_boottime_s=1095.0, exit=DONE)
    part.take(ended, 1001.0)
    part.take(ended, 1002.0)
    expected = a_part(
        tmp_path,
        is_known=True,
        state=GangState.ENDED,
        started_boottime_s=90.0,
        ended_boottime_s=94.0,
        live_boottime_s=100.0,
        exit=DONE,
    )
    assert part == expected


def test_a_lease_that_ends_later_than_any_that_was_sent_is_learned(tmp_path: Path, boottime: Boottime) -> None:
    part = a_part(tmp_path)
    for node_s, offset_s, ends_s in [(1160.0, 900.0, 160.0), (1161.0, 1002.0, 160.0), (1170.0, 1000.0, 170.0)]:
        part.take(shown(GangState.RUNNING, lease_node_boottime_s=node_s), offset_s)
        assert (part.lease_node_boottime_s, part.lease_boottime_s) == (node_s, ends_s)
    part.take(shown(GangState.ENDED, lease_node_boottime_s=1180.0), 1000.0)
    assert (part.lease_node_boottime_s, part.lease_boottime_s) == (1170.0, 170.0)


def test_reports_that_were_taken_are_never_asked_for_again(tmp_path: Path) -> None:
    part = a_part(tmp_path)
    for sequences, after in [((), 0), ((3,), 3), ((1, 2), 3), ((), 3)]:
        part.take(shown(GangState.RUNNING, reports=reports(*sequences)), 0.0)
        assert part.reports_after == after


@pytest.mark.parametrize(("is_known", "outcome"), [(True, GangOutcome.LOST), (False, GangOutcome.PREEMPTED)])
def test_a_part_that_is_given_up_is_lost_only_if_its_node_ever_showed_it(
    tmp_path: Path, boottime: Boottime, is_known: bool, outcome: GangOutcome
) -> None:
    part = a_part(tmp_path, is_known=is_known, has_more=True, state=GangState.RUNNING)
    part.lose("node n1 is gone")
    assert part == a_part(
        tmp_path,
        is_known=is_known,
        state=GangState.ENDED,
        is_silent=True,
        ended_boottime_s=100.0,
        exit=GangExit(outcome=outcome, message="node n1 is gone"),
    )


def test_a_part_that_had_ended_and_is_given_up_keeps_the_instant_of_its_end(tmp_path: Path, boottime: Boottime) -> None:
    part = a_part(tmp_path, is_known=True, state=GangState.ENDED, ended_boottime_s=60.0, has_more=True)
    assert (part.is_over, part.untold_until_boottime_s) == (False, 60.0 + UNTOLD_LIMIT_S)
    part.lose("it told nothing")
    assert (part.is_over, part.ended_boottime_s) == (True, 60.0)
    assert a_part(tmp_path).untold_until_boottime_s == UNTOLD_LIMIT_S


@pytest.mark.parametrize(
    ("over", "failed_s"),
    [
        ({}, 0.0),
        ({"ended_boottime_s": 90.0, "live_boottime_s": 80.0, "exit": DONE}, 90.0),
        ({"ended_boottime_s": 90.0, "live_boottime_s": 80.0, "exit": LOST}, 80.0),
        ({"ended_boottime_s": 90.0, "live_boottime_s": 0.0, "exit": LOST}, 0.0),
        ({"ended_boottime_s": 90.0, "exit": LOST}, 90.0),
        ({"ended_boottime_s": 90.0, "live_boottime_s": 80.0, "is_silent": True}, 80.0),
        ({"ended_boottime_s": 90.0, "live_boottime_s": 80.0}, 90.0),
    ],
)
def test_a_part_that_was_lost_failed_when_it_was_last_seen_to_run(
    tmp_path: Path, over: dict[str, Any], failed_s: float
) -> None:
    assert a_part(tmp_path, **over).failed_boottime_s == failed_s


@pytest.mark.parametrize(
    ("state", "has_more", "is_over"),
    [(GangState.ENDED, False, True), (GangState.ENDED, True, False), (GangState.RUNNING, False, False)],
)
def test_a_part_is_over_once_it_has_ended_and_told_all(
    tmp_path: Path, state: GangState, has_more: bool, is_over: bool
) -> None:
    assert replace(a_part(tmp_path), state=state, has_more=has_more).is_over is is_over
