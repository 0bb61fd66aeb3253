"""A service under the driver: its replicas are made in the scheduler's commits, and end with it."""

from gavel.types import Check, Job, JobState, Reason, ServiceSpec, Serving
from tests.mechanism.world import World

SERVICE = ServiceSpec(
    replicas=2,
    replicas_min=1,
    replicas_max=2,
    min_available=1,
    serving=Serving(port=0, readiness=Check(path="/ready")),
    spread_by="node",
)


def replicas(world: World) -> list[Job]:
    return [job for job in world.store.snapshot().jobs.values() if job.spec.replica is not None]


def test_replicas_are_made_once_run_and_end_with_their_service() -> None:
    world = World()
    service = world.submit(total_steps=10**9, preemptible=False, service=SERVICE)
    world.run(lambda: [job.state for job in replicas(world)] == [JobState.LEASED, JobState.LEASED])
    assert all(job.spec.replica and job.spec.replica.service == service for job in replicas(world))
    assert not any(job.spec.preemptible or job.spec.service for job in replicas(world))
    parent = world.store.job(service)
    assert (parent.state, parent.reason) == (JobState.QUEUED, Reason.SERVING)
    assert "0 of 2 replicas are ready" in parent.message
    before = {job.id for job in replicas(world)}
    world.driver = world.new_driver()  # as after a kill
    world.run_until_s(world.clock.now_s() + 60.0)
    assert {job.id for job in replicas(world)} == before
    world.store.request_cancel(service, now_s=world.clock.now_s(), by="ann")
    world.run(lambda: not world.store.snapshot().jobs)
