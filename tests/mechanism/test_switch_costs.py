"""What starts and stops cost is measured, kept with the rounds, and makes gangs stay."""

import pytest

from gavel.mechanism.planning.switch_costs import blended, measured_s
from gavel.types import GangExit, GangOutcome, GangSeen, GangState
from tests.builders import a_job
from tests.mechanism.world import GRACE_S, World, a_cluster_of_nodes

STATED = {"throughput_steps_per_s": {"fast": 10.0, "slow": 5.0}}


def a_gang(held_s: float, outcome: GangOutcome = GangOutcome.PREEMPTED) -> GangSeen:
    return GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.ENDED,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=100.0,
        ended_at_s=100.0 + held_s,
        exit=GangExit(outcome=outcome),
    )


def test_the_cost_is_what_the_reports_do_not_account_for_less_the_step_that_was_cut_off() -> None:
    job = a_job(trained_s=6.0, trained_steps=12)
    assert measured_s(job, a_gang(9.0)) == pytest.approx(9.0 - 6.0 - 0.5)
    assert measured_s(job, a_gang(6.4)) == 0.0


@pytest.mark.parametrize("outcome", [GangOutcome.LOST, GangOutcome.NOT_STARTED])
def test_gangs_that_did_not_end_in_good_order_tell_nothing(outcome: GangOutcome) -> None:
    assert measured_s(a_job(trained_s=6.0, trained_steps=12), a_gang(9.0, outcome)) is None
    assert measured_s(a_job(), a_gang(9.0)) is None, "it never trained"


def test_newer_measurements_count_more_and_stand_for_kinds_nobody_measured() -> None:
    costs = blended(blended({}, "mlp", 2.0), "cnn", 4.0)
    assert costs == pytest.approx({"mlp": 2.0, "cnn": 4.0, "": 2.6})
    assert blended(costs, "mlp", 3.0)["mlp"] == pytest.approx(2.3)


def costs_after(world: World, at_s: float) -> dict[str, float]:
    for _ in range(3):
        world.submit(100_000, **STATED)
    world.run_until_s(at_s)
    return dict(world.store.snapshot().round_records[-1].switch_cost_s)


def test_the_driver_measures_what_a_start_costs_and_a_restart_does_not_forget_it() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"), gang_grace_s=GRACE_S, switch_cost_s=1.5)
    costs = costs_after(world, 95.0)
    assert costs["mlp"] == pytest.approx(1.5, abs=0.25) and costs[""] == pytest.approx(costs["mlp"])
    world.driver = world.new_driver()
    world.run_until_s(102.0)
    assert world.store.snapshot().round_records[-1].switch_cost_s["mlp"] == pytest.approx(1.5, abs=0.25)


def test_gangs_move_less_often_when_starts_cost_and_moves_are_priced() -> None:
    def moves(price_moves: bool) -> int:
        cluster = a_cluster_of_nodes(n0="fast", n1="slow")
        world = World(cluster=cluster, gang_grace_s=GRACE_S, switch_cost_s=3.0, price_moves=price_moves)
        costs_after(world, 300.0)
        return sum(job.preemptions for job in world.store.snapshot().jobs.values())

    assert moves(price_moves=True) < moves(price_moves=False)


def test_starts_that_cost_nothing_have_no_price() -> None:
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"), gang_grace_s=GRACE_S)
    assert not any(costs_after(world, 95.0).values())
