"""A lean simulation goes on from what the production driver left: progress, leases, lags."""

import pytest

from gavel.simulator.live import Live, undecided
from gavel.simulator.live_state import world_state
from gavel.types import Cluster
from tests.mechanism.world import World
from tests.simulator.live import live_state_of


def a_live_state() -> Live:
    """Six jobs on a virtual cluster under the production driver, in the middle of their run."""
    world = World(round_duration_s=5.0)
    for index in range(6):
        world.submit(total_steps=400 + 100 * index)
    world.run(lambda: world.clock.now_s() >= 40.0)
    return live_state_of(world)


def test_jobs_go_on_with_their_steps_their_workers_and_their_lags() -> None:
    live = a_live_state()
    decided, last = undecided(live), live.last
    assert last is not None
    rows = range(len(decided.jobs))
    state = world_state(
        decided.jobs, decided.problem, rows, cluster=decided.cluster, last=last, now_s=live.now_s
    ).active
    leases = {lease.job_id: lease for lease in last.plan.leases}
    assert leases and len(state.jobs) == len(decided.jobs)
    for row, job in enumerate(decided.jobs):
        held = leases.get(job.id)
        assert state.workers[row] == (held.worker_ids if held else ())
        assert state.jobs[row].total_steps == job.total_steps
        assert state.jobs[row].submitted_at_s == pytest.approx(job.submitted_at_s - live.now_s)
    running = [row for row, job in enumerate(decided.jobs) if job.id in leases]
    assert all(state.counts["column"][row] >= 0 for row in running)


def test_a_gang_whose_workers_are_gone_waits() -> None:
    live = a_live_state()
    decided = undecided(live)
    rows = range(len(decided.jobs))
    state = world_state(decided.jobs, decided.problem, rows, cluster=Cluster(), last=live.last, now_s=live.now_s)
    assert set(state.active.workers) == {()} and (state.active.counts["column"] == -1).all()
