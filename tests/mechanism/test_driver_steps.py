"""What each tick commits, tells the cluster and waits for: whole commits, whole instructions, exact instants."""

from dataclasses import fields, replace
from typing import Any

from gavel.errors import StoreUnavailable
from gavel.mechanism.jobs.events import EventKind
from gavel.ports import (
    Changes,
    ExtendLease,
    ForgetGang,
    JobEvent,
    KeepCheckpoint,
    LaunchGang,
    PrepareGang,
    SetResources,
)
from gavel.types import (
    EphemeralResource,
    JobId,
    JobState,
    NodeState,
    NodeStatus,
    StartupTimes,
    Usage,
)
from tests.builders import a_cluster
from tests.mechanism.recorded import Recorded

INF = float("inf")
HOUR_S = 3600.0
OF_ONE_STEP = Usage(tier="default", month="1970-01")


def written(changes: Changes) -> dict[str, Any]:
    """What a commit writes, by field, without jobs, round and what follows from estimates: other tests read those."""
    values = {each.name: getattr(changes, each.name) for each in fields(changes)}
    apart = ("jobs", "round", "predictions", "throughputs")
    return {name: value for name, value in values.items() if value not in (None, (), 0.0) and name not in apart}


def a_resource(job_id: JobId, generation: int, ends_at_s: float) -> SetResources:
    own = EphemeralResource(
        name=f"gang-{job_id}-{generation}",
        node="node-0",
        capacity=1,
        owner="gavel",
        lease_expires_at_s=ends_at_s + 0.5,
        generation=generation,
    )
    return SetResources(resources=(own,))


# --- commits and instructions ---


def test_the_first_tick_commits_all_that_is_new_and_launches_what_it_planned() -> None:
    world = Recorded()
    world.driver = world.new_driver(tokens_of=lambda jobs: {job.id: f"token of {job.id}" for job in jobs})
    job_id = world.submit(150)
    due_s, (changes,), instructions = world.tick()
    event = JobEvent(
        job_id=job_id,
        at_s=0.0,
        kind=EventKind.LAUNCHED,
        message="The gang was launched on fast-0 as number 1, from step 0.",
        round_index=1,
    )
    node = NodeStatus(name="node-0", state=NodeState.READY)
    assert written(changes) == {"events": (event,), "cluster": a_cluster(fast=2), "nodes": (node,)}
    assert [(job.id, job.state, job.generation, job.rounds_received) for job in changes.jobs] == [
        (job_id, JobState.LEASED, 1, {"fast": 1})
    ]
    launch = LaunchGang(
        job_id=job_id,
        generation=1,
        user="ann",
        argv=("virtual", "mlp"),
        env={},
        accelerator_type="fast",
        worker_ids=("fast-0",),
        resource=f"gavel/gang-{job_id}-1",
        lease_expires_at_s=10.0,
        start_step=0,
        total_steps=150,
        checkpoint=None,
        job_token=f"token of {job_id}",
        tier="default",
        time_to_loss_s=1000 * HOUR_S,
    )
    assert instructions == [a_resource(job_id, 1, 10.0), launch]
    assert (due_s, world.driver.newest_round, world.driver.ticks) == (7.5, (1, 0.0), 1)


def test_later_commits_hold_only_what_has_changed_since() -> None:
    """Estimates change with each report: they are stored with rounds and events, which are seldom enough."""
    world = Recorded()
    job_id = world.submit(150)
    world.tick(0.0)
    _, (reported,), extended = world.tick(5.0)
    hours = 5.0 / HOUR_S
    used = replace(OF_ONE_STEP, accelerator_hours=hours, cost_usd=hours, worker_hours=hours)
    times = StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(0.0,))
    assert written(reported) == {"made_at_s": 5.0, "usage": (used,), "startup_times": (times,)}
    assert (reported.round, reported.throughputs, [job.id for job in reported.jobs]) == (None, None, [job_id])
    assert extended == [a_resource(job_id, 1, 10.0), ExtendLease(job_id=job_id, generation=1, expires_at_s=10.0)]
    _, (planned,), _ = world.tick(7.5)
    assert [row.measurements for row in planned.throughputs or ()] == [2]
    assert planned.round is not None and planned.round.plan.round_index == 2
    assert written(planned) == {"made_at_s": 7.5, "usage": planned.usage}
    _, (ran,), instructions = world.tick(10.0)
    assert (written(ran), ran.round, ran.throughputs) == ({"made_at_s": 10.0, "usage": ran.usage}, None, None)
    assert instructions == []
    _, (ended,), (forgotten,) = world.tick(15.0)
    assert [row.measurements for row in ended.throughputs or ()] == [4]
    assert forgotten == ForgetGang(job_id=job_id, generation=1)


def test_estimates_are_stored_once_and_not_again_with_an_event_that_taught_nothing() -> None:
    world = Recorded()
    world.submit(50)
    world.tick(0.0)
    _, (ended,), _ = world.tick(5.0)
    assert ended.throughputs is not None
    waiting = world.submit(50)
    world.store.request_cancel(waiting, now_s=5.0)
    _, (cancelled,), _ = world.tick(5.0)
    assert [event.kind for event in cancelled.events] == [EventKind.CANCELLED]
    assert cancelled.throughputs is None


def test_a_tick_that_changes_nothing_writes_nothing_and_tells_nobody_anything() -> None:
    world = Recorded()
    assert [bool(each) for each in world.tick()[1]] == [True]  # the cluster and its node
    assert world.tick(1.0) == (INF, [], [])
    world.backend.lose_node("node-0")
    _, (changes,), _ = world.tick(2.0)
    lost = NodeStatus(name="node-0", state=NodeState.LOST, since_s=2.0)
    gone = replace(world.backend.whole, nodes=(), workers=())
    assert written(changes) == {"made_at_s": 2.0, "cluster": gone, "nodes": (lost,)}


def test_what_a_refused_commit_would_have_written_is_written_by_the_next_one() -> None:
    """Reports, estimates and the cluster: the backend says each only once."""
    world = Recorded()
    world.submit(150)
    world.kept.problem = StoreUnavailable("database is locked")
    assert world.tick(0.0)[1:] == ([], [])
    _, (first,), _ = world.tick(0.5)
    assert first.cluster == world.backend.whole
    world.tick(5.0)
    world.kept.problem = StoreUnavailable("database is locked")
    world.tick(8.0)
    _, (planned,), _ = world.tick(8.5)
    assert [job.steps_reported for job in planned.jobs] == [80]
    assert [row.measurements for row in planned.throughputs or ()] == [3]


def test_a_checkpoint_is_kept_as_soon_as_it_is_accepted_and_only_once() -> None:
    world = Recorded(switch_cost_s=1.0, cluster=a_cluster(fast=1))
    ids = [world.submit(1000) for _ in range(2)]
    batches = [world.tick(float(at_s))[2] for at_s in range(45)]
    kept = [each for batch in batches for each in batch if isinstance(each, KeepCheckpoint)]
    checkpoints = {(each.job_id, each.checkpoint) for each in kept}
    assert len(kept) == len(checkpoints) > 1
    newest = {each.job_id: each.checkpoint for each in kept}
    assert newest == {job_id: world.job(job_id).checkpoint for job_id in ids}
    assert all(each in batch[:2] for batch in batches for each in kept if each in batch)


def test_the_gangs_of_the_next_round_are_hinted_at_unless_the_service_is_told_not_to() -> None:
    for warm_starts, expected in ((True, 1), (False, 0)):
        world = Recorded(cluster=a_cluster(fast=1, slow=1), warm_starts=warm_starts)
        world.submit(200)
        world.tick(0.0)
        world.tick(5.0)
        _, _, instructions = world.tick(7.5)
        assert sum(isinstance(each, PrepareGang) for each in instructions) == expected


def test_gangs_that_are_lost_more_often_have_less_time_to_their_next_loss() -> None:
    world = Recorded()
    used = replace(OF_ONE_STEP, worker_hours=1000.0, lost_gangs=3)
    world.store.commit(world.store.snapshot().version, Changes(usage=(used,)))
    world.submit(150, scale_factor=2)
    launch = world.tick()[2][1]
    assert isinstance(launch, LaunchGang)
    assert (launch.time_to_loss_s, launch.job_token) == (2000 * HOUR_S / (4 * 2), "")
