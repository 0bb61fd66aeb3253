"""Changes tried on a live state, by the service's own code."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.simulator.live import Live
from gavel.simulator.what_if import AddedNodes, Change, Effects, Outcome, Question, effects
from gavel.types import Job, JobState, NodeState, NodeStatus, Tier
from tests.builders import a_cluster, a_job, a_spec
from tests.mechanism.world import World
from tests.simulator.live import live_state_of

NOW_S = 1000.0
RATES = {"fast": 10.0, "slow": 5.0}
TIERS = {"gold": Tier(name="gold", guarantee=0.5), "silver": Tier(name="silver")}


def jobs(*tiers: str, **spec: Any) -> list[Job]:
    """A job of 1,000 steps in each of the tiers, with stated rates, in order of arrival."""
    fields = {"kind": "ann/x", "throughput_steps_per_s": RATES, "total_steps": 1000, "cpu_cores": 0} | spec
    return [
        a_job(f"{tier}-{index}", spec=fields | {"tier": tier}, submitted_at_s=float(index))
        for index, tier in enumerate(tiers)
    ]


def live(*tiers: str, **over: Any) -> Live:
    fields: dict[str, Any] = {
        "jobs": jobs(*tiers),
        "tiers": TIERS,
        "cluster": a_cluster(fast=2, slow=2),
        "nodes": {},
        "usage": {},
        "throughputs": (),
        "policy": "hierarchical",
        "settings": Settings(policy="hierarchical"),
        "last": None,
        "now_s": NOW_S,
    }
    return Live(**fields | over)


def tried(state: Live, simulation_cpu_s: float = 5.0, **change: Any) -> Effects:
    return effects(Question(live=state, change=Change(**change), simulation_cpu_s=simulation_cpu_s))


def pace(outcome: Outcome, tier: str) -> float:
    return sum(job.steps_per_s for job in outcome.jobs.values() if job.tier == tier)


def test_no_change_changes_nothing() -> None:
    result = tried(live("gold", "silver", "silver"))
    assert result.before.jobs == result.after.jobs and result.before.workers == result.after.workers


def test_a_heavier_tier_takes_workers_from_the_other_in_proportion() -> None:
    """Thirty steps/s for four gold and four silver jobs, half of them guaranteed to gold; then three to one."""
    result = tried(live(*["gold", "silver"] * 4), tiers=(Tier(name="gold", weight=3.0, guarantee=0.5),))
    assert pace(result.before, "silver") == pytest.approx(15.0, abs=1e-3)
    assert pace(result.after, "silver") == pytest.approx(7.5, abs=1e-3)
    assert pace(result.after, "gold") == pytest.approx(22.5, abs=1e-3)
    gold = result.after.jobs["gold-0"]
    assert gold.steps_per_s > result.before.jobs["gold-0"].steps_per_s
    assert gold.finish_at_s and gold.is_simulated


def test_a_job_alone_ends_when_its_steps_are_done() -> None:
    result = tried(
        live("gold"), nodes_gone=("node-0",), nodes_added=(AddedNodes(count=1, accelerator_type="slow", workers=1),)
    )
    assert result.before.jobs["gold-0"].finish_at_s == pytest.approx(NOW_S + 100.0)
    assert result.after.capacity == {"slow": 1}
    assert result.after.jobs["gold-0"].finish_at_s == pytest.approx(NOW_S + 200.0)


def test_jobs_that_no_round_may_serve_are_left_out() -> None:
    paused, busy = jobs("gold", "gold")
    result = tried(live(jobs=[replace(paused, pause_requested=True), busy]))
    assert set(result.before.jobs) == {busy.id}


def test_a_cordoned_node_is_not_counted() -> None:
    status = NodeStatus(name="node-0", state=NodeState.CORDONED, is_cordoned=True)
    result = tried(live("gold", nodes={"node-0": status}))
    assert result.before.capacity == {} and result.before.jobs["gold-0"].finish_at_s is None


def test_steps_that_are_done_are_not_done_again() -> None:
    (job,) = jobs("gold")
    result = tried(live(jobs=[replace(job, steps_done=600, steps_reported=700)]))
    assert result.before.jobs[job.id].finish_at_s == pytest.approx(NOW_S + 30.0)


def test_one_more_job_and_another_policy_are_tried_together() -> None:
    more = a_spec(kind="ann/x", tier="gold", total_steps=100, throughput_steps_per_s=RATES, cpu_cores=0)
    result = tried(live(*["gold"] * 4), job=more, policy="fifo")
    assert "what-if" not in result.before.jobs
    new = result.after.jobs["what-if"]
    assert new.steps_per_s == pytest.approx(0.0, abs=1e-6) and new.finish_at_s and new.finish_at_s > NOW_S + 100


def test_a_composition_in_force_is_what_the_live_state_is_solved_and_simulated_by() -> None:
    state = live(*["gold"] * 6, policy="fifo/round_duration_s=40")
    assert (state.in_force.policy, state.in_force.round_duration_s) == ("fifo", 40.0)
    result = tried(state, policy="max_min_fairness/round_duration_s=20")
    assert (result.before.policy, result.after.policy) == (state.policy, "max_min_fairness/round_duration_s=20")
    plain = tried(live(*["gold"] * 6, policy="fifo")).before
    assert result.before.workers == plain.workers
    assert {job.is_simulated for job in result.before.jobs.values()} == {True}


def test_what_cannot_be_tried_is_refused_with_the_field() -> None:
    with pytest.raises(InvalidRequest, match=r"nodes_gone\.1: there is no node nowhere; there are node-0"):
        tried(live("gold"), nodes_gone=("node-0", "nowhere"))
    with pytest.raises(InvalidRequest, match="nodes_added: at most 10000 workers"):
        tried(live("gold"), nodes_added=(AddedNodes(count=1000, accelerator_type="fast", workers=64),))
    with pytest.raises(InvalidRequest, match="luck"):
        tried(live("gold"), policy="luck")


def test_a_simulation_without_time_leaves_the_fluid_s_answer() -> None:
    """Where jobs of one length share alike: the fluid cannot tell which of them an order takes first."""
    state = live(*["gold", "silver"] * 6)
    alike = {name: replace(tier, within_user="equal") for name, tier in state.tiers.items()}
    state = replace(state, tiers=alike)
    quick, slow = tried(state, simulation_cpu_s=0.0).before, tried(state).before
    assert not any(job.is_simulated for job in quick.jobs.values()) and all(j.is_simulated for j in slow.jobs.values())
    for job_id, job in slow.jobs.items():
        other = quick.jobs[job_id].finish_at_s
        assert other and job.finish_at_s and other - NOW_S == pytest.approx(job.finish_at_s - NOW_S, rel=0.5)


def test_a_cap_that_is_tried_cuts_what_the_tier_is_promised() -> None:
    result = tried(live("gold", "silver"), tiers=(Tier(name="gold", cap=0.25),))
    assert sum(result.before.workers["gold"].values()) > 0.9
    assert result.after.workers["gold"]["fast"] <= 0.25 * 2 + 1e-6
    assert result.after.jobs["silver-1"].finish_at_s


@given(
    tiers=st.lists(st.sampled_from(["gold", "silver"]), max_size=6),
    fast=st.integers(0, 3),
    slow=st.integers(0, 3),
    policy=st.sampled_from(["hierarchical", "fifo", "max_min_fairness"]),
)
def test_nobody_holds_workers_that_are_not_there(tiers: list[str], fast: int, slow: int, policy: str) -> None:
    result = tried(live(*tiers, cluster=a_cluster(fast=fast, slow=slow)), 0.05, policy=policy)
    for outcome in (result.before, result.after):
        for name, count in outcome.capacity.items():
            assert sum(each[name] for each in outcome.workers.values()) <= count + 1e-6
        assert set(outcome.jobs) == {job.id for job in jobs(*tiers)}
        assert all(job.finish_at_s is None or job.finish_at_s > NOW_S for job in outcome.jobs.values())


def test_the_forecast_of_a_live_state_is_near_what_the_service_then_does() -> None:
    """A virtual cluster under the production driver: asked in the middle of a run, held against its own end."""
    world = World(round_duration_s=5.0)
    ids = [world.submit(total_steps=400 + 100 * index) for index in range(6)]
    world.run(lambda: world.clock.now_s() >= 40.0)
    state, now_s = live_state_of(world), world.clock.now_s()
    forecast = tried(state).before.jobs
    world.run(lambda: all(world.store.job(job_id).state is JobState.COMPLETED for job_id in ids))
    assert forecast
    for job_id, job in forecast.items():
        ended_s = world.store.job(job_id).finished_at_s
        assert ended_s and job.finish_at_s
        assert abs(job.finish_at_s - ended_s) <= 0.35 * (ended_s - now_s) + 3 * world.settings.round_duration_s


def test_what_jobs_have_held_so_far_counts_in_the_simulation() -> None:
    """1. One worker; the job that came first has held it for four hours, the other one has held nothing.

    2. The policy serves first who has held the least, by levels: the second job ends first, as it would in the service.
    """
    first, second = jobs("gold", "gold", total_steps=4000)
    first = replace(first, steps_done=2000, steps_reported=2000, received_s={"fast": 4 * 3600.0})
    second = replace(second, spec=replace(second.spec, total_steps=2000))
    policy = "rank_weighted_speed?length=attained_service"
    state = live(jobs=[first, second], cluster=a_cluster(fast=1), policy=policy)
    outcome = tried(state).before.jobs
    assert all(job.is_simulated for job in outcome.values())
    assert (outcome[second.id].finish_at_s or 0) < (outcome[first.id].finish_at_s or 0)
