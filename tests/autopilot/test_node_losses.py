"""Losses of nodes in futures: as often as was seen, with repair times that were seen, for all candidates alike."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.autopilot.decision import decide, futures
from gavel.autopilot.node_losses import between, drawn, seen
from gavel.simulator.outcome import NodeOutage
from tests.autopilot.test_decision import MIXED, a_flight, a_question, flown
from tests.autopilot.test_rollout import CLUSTER
from tests.simulator.test_lean import RUNNER, a_scenario
from tests.simulator.test_simulation import FULL

NODES = [f"node-{index}" for index in range(20)]
HOUR_S = 3600.0


def lost(node: str, from_s: float, until_s: float) -> NodeOutage:
    return NodeOutage(node=node, from_s=from_s, until_s=until_s)


SEEN = [lost("node-3", 2 * HOUR_S, 3 * HOUR_S), lost("node-4", 5 * HOUR_S, 7 * HOUR_S)]


def draw(losses: list[NodeOutage], seed: int, hours: float = 100.0) -> tuple[NodeOutage, ...]:
    random = np.random.default_rng(seed)
    return drawn(losses, NODES, since_s=0.0, now_s=10 * HOUR_S, until_s=(10 + hours) * HOUR_S, random=random)


def test_nodes_are_lost_at_the_rate_that_was_seen_with_the_repair_times_that_were_seen() -> None:
    """Two losses in ten hours: about twenty in the next hundred, of an hour or of two."""
    every = [draw(SEEN, seed) for seed in range(30)]
    assert np.mean([len(each) for each in every]) == pytest.approx(20, rel=0.15)
    assert {round(each.until_s - each.from_s) for future in every for each in future} == {3600, 7200}
    assert draw(SEEN, 1) == every[1] and draw([], 1) == ()


def test_a_node_that_is_away_stays_so_for_what_is_left_of_a_repair() -> None:
    now = [*SEEN, lost("node-9", 8.5 * HOUR_S, inf)]
    for seed in range(5):
        first = next(each for each in draw(now, seed) if each.node == "node-9")
        assert (first.from_s, first.until_s) == (10 * HOUR_S, 10.5 * HOUR_S)
    long = next(each for each in draw([lost("node-9", HOUR_S, inf)], 0) if each.node == "node-9")
    assert long.until_s == 19 * HOUR_S


@settings(max_examples=200 if FULL else 30, deadline=None)
@given(seed=st.integers(0, 1000), away=st.booleans())
def test_outages_of_a_node_do_not_overlap_and_begin_before_the_horizon(seed: int, away: bool) -> None:
    losses = [*SEEN, lost("node-9", 9 * HOUR_S, inf)] if away else SEEN
    for node in NODES:
        own = [each for each in draw(losses, seed) if each.node == node]
        assert all(one.until_s <= other.from_s for one, other in pairwise(own))
        assert all(10 * HOUR_S <= each.from_s < 110 * HOUR_S and each.until_s > each.from_s for each in own)


def test_nobody_knows_when_an_outage_will_end() -> None:
    assert seen(SEEN, 6 * HOUR_S) == (SEEN[0], replace(SEEN[1], until_s=inf))
    assert seen(SEEN, 4 * HOUR_S) == (SEEN[0],)
    assert between(SEEN, 4 * HOUR_S, 6 * HOUR_S) == (replace(SEEN[1], until_s=6 * HOUR_S),)


@pytest.mark.full
def test_a_decision_simulates_the_losses_and_a_run_with_them_can_be_decided_again() -> None:
    node = CLUSTER.nodes[0].name
    question = a_question(losses=(lost(node, 10.0, 40.0), lost(node, 80.0, inf)))
    assert next(futures(question)).outages[0].from_s == question.state.at_s
    without = decide(replace(question, losses=()), RUNNER)
    assert decide(question, RUNNER).scores != without.scores
    outages = [lost(node, 50.0, 130.0), lost(node, 300.0, 350.0)]
    pilot = flown(MIXED, a_flight(), replace(a_scenario(CLUSTER, "fifo"), outages=outages))
    assert len(pilot.result().rows) == len(MIXED)
    assert all(not asked.scenario.outages for asked in pilot.questions)
    assert [len(asked.losses) for asked in pilot.questions][-1] == 2
    assert decide(pilot.questions[2], RUNNER) == pilot.decisions[2]
