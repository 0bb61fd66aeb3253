"""A scenario through the whole service has the same figures as the lean simulation, where both can run it."""

from dataclasses import replace

import pytest

from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.lean import simulate as lean
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.types import Tier
from tests.simulator.test_lean import BESIDE, PACKED, RATES, a_cluster_of_nodes, a_scenario, a_trace_job
from workloads.traces.job import TraceJob

JOBS = [
    a_trace_job(
        i, "flat" if i % 3 else "steep", 80 + 17 * i, 7.0 * i, tier=("default", "gold")[i % 2], weight=1 + i / 7
    )
    for i in range(9)
]


def driven(jobs: list[TraceJob], scenario: Scenario) -> SimulationOutcome:
    world = DrivenWorld(jobs, scenario, InlineRunner())
    rounds = sum(1 for _ in world.rounds())
    result = world.result()
    assert rounds == result.tally.rounds and world.completed == len(result.rows)
    return result


def a_tiered_scenario(policy: str, **over: object) -> Scenario:
    tiers = (Tier(name="default"), Tier(name="gold", weight=2.0))
    return replace(a_scenario(a_cluster_of_nodes(fast=2, slow=2), policy, **over), tiers=tiers)


@pytest.mark.parametrize(("policy", "is_packed"), [("equal_share", False), (PACKED, True)])
def test_the_figures_are_those_of_the_lean_simulation(policy: str, is_packed: bool) -> None:
    """Starts cost nothing and all rates are given, so both decide alike. Shared workers are counted once."""
    scenario = replace(a_tiered_scenario(policy, space_sharing=is_packed), colocated=BESIDE if is_packed else None)
    whole, quick = driven(JOBS, scenario), lean(JOBS, scenario)
    for one, other in zip(whole.rows, quick.rows, strict=True):
        assert one.name == other.name and one.tier == other.tier and one.rounds == other.rounds
        assert (one.jct_s, one.fastest_s) == pytest.approx((other.jct_s, other.fastest_s), abs=1e-4)
        assert (one.packed_s, one.cost_usd) == pytest.approx((other.packed_s, other.cost_usd), abs=1e-3)
    assert whole.utilisation == pytest.approx(quick.utilisation, rel=1e-3)
    assert whole.tally.busy_s == pytest.approx(quick.tally.busy_s, abs=0.1)
    counts = ("rounds", "solves", "failed_solves", "starts", "kept", "packed", "jobs_seen", "most_active")
    assert [getattr(whole.tally, name) for name in counts] == [getattr(quick.tally, name) for name in counts]
    assert (whole.tally.packed > 0) is is_packed


def test_only_measured_jobs_count_and_arrivals_end_with_them() -> None:
    result = driven(JOBS, replace(a_tiered_scenario("fifo"), measure=(2, 5)))
    assert [row.name for row in result.rows] == ["job-2", "job-3", "job-4"]


def test_what_starts_cost_is_lost() -> None:
    scenario = replace(a_tiered_scenario("fifo"), switch_cost_s={"": 2.0, "steep": 3.0})
    result = driven([a_trace_job(0, "steep", 40), a_trace_job(1, "flat", 10)], scenario)
    assert [row.lost_s for row in result.rows] == [3.0, 2.0]
    assert result.rows[0].jct_s == pytest.approx(3.0 + 40 / RATES["steep", 1, "fast"])


def test_pairs_are_found_out_and_those_that_do_not_fit_hold_up_nobody_for_long() -> None:
    """No pair rate is known at first, so pairs are tried; those that make no progress are separated."""
    colocated = {key: rate for key, rate in BESIDE.items() if key[0] == key[1]}
    given, hidden = (
        driven(
            JOBS, replace(a_tiered_scenario(PACKED, space_sharing=True), colocated=colocated, is_estimated=is_estimated)
        )
        for is_estimated in (False, True)
    )
    assert hidden.tally.packed > 0
    assert hidden.tally.rounds <= 3 * given.tally.rounds
