"""When the next round is decided."""

import pytest

from gavel.config import Settings
from gavel.mechanism.planning.timing import planning_instant_s
from gavel.types import RoundPlan

ROUND_S = 10.0


@pytest.mark.parametrize(("lasts_s", "from_s"), [(10.0, 7.5), (15.0, 11.25), (4.0, 1.5), (1.0, 0.0)])
def test_the_round_after_one_that_is_cut_short_is_decided_as_early_before_it_as_ever(
    lasts_s: float, from_s: float
) -> None:
    plan = RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=0.0,
        duration_s=lasts_s,
        leases=(),
        policy="",
        allocation_digest="",
    )
    assert planning_instant_s(plan, Settings(round_duration_s=ROUND_S), 0.0) == from_s
