"""Regret of the service's own epochs, against each composition that they were replayed with."""

from dataclasses import replace

import pytest

from gavel.autopilot.regret import regrets
from tests.autopilot_history import three_decisions


def test_costs_are_summed_over_the_epochs_that_a_composition_was_replayed_in() -> None:
    best, *others = regrets(three_decisions(0.0))
    assert (best.composition, best.epochs, best.actual) == ("shortest_job_first", 2, 2.0)
    assert best.replayed == pytest.approx(0.9 + 0.8) and best.regret == pytest.approx(2.0 / 1.7 - 1)
    assert [each.composition for each in others] == ["max_min_fairness", "fifo/backfill=false"], "the best one first"
    assert others[1].regret == pytest.approx(2.0 / 3.25 - 1), "negative: the service did better"


def test_a_candidate_that_came_later_is_compared_over_its_own_epochs() -> None:
    *_, last = three_decisions(0.0)
    added = replace(last, replayed=(*last.replayed, ("equal_share", 2.0)))
    own = {each.composition: each for each in regrets([added, *list(three_decisions(0.0))[:2]])}
    assert (own["equal_share"].epochs, own["equal_share"].actual, own["fifo/backfill=false"].epochs) == (1, 1.0, 2)


def test_epochs_that_cost_nothing_or_were_not_replayed_have_no_regret() -> None:
    first, second, _ = three_decisions(0.0)
    assert regrets([first]) == ()
    assert regrets([replace(second, replayed=(("fifo", 0.0),), actual=0.0)]) == ()
