import pytest

from gavel.clock import ManualClock
from gavel.mechanism.jobs.infeasibility import evidence_of
from gavel.ports import ClusterBackend, ExtendLease, ForgetGang, Instruction, LaunchGang, SetResources, StopGang
from gavel.simulator.cluster import HALVES, Throughput, VirtualCluster, program
from gavel.types import EphemeralResource, GangOutcome, GangSeen, GangState, ReportKind
from tests.builders import a_cluster

THROUGHPUT = {("mlp", 1, "fast"): 2.5, ("mlp", 1, "slow"): 1.0, ("mlp", 2, "fast"): 4.0}


class Scene:
    """A virtual cluster of two fast workers and a slow one, its clock, and the scheduler's side of a gang."""

    def __init__(self, switch_cost_s: float = 0.0, throughput: Throughput = THROUGHPUT) -> None:
        self.clock = ManualClock()
        self.cluster = VirtualCluster(a_cluster(fast=2, slow=1), throughput, self.clock, switch_cost_s)

    def resource(self, generation: int = 1, job: str = "x", capacity: int = 1, until_s: float = 20.0) -> SetResources:
        return SetResources(
            resources=(
                EphemeralResource(
                    name=f"gang-{job}-{generation}",
                    node="node-0",
                    capacity=capacity,
                    owner="gavel",
                    lease_expires_at_s=until_s,
                    generation=generation,
                ),
            )
        )

    def launch(self, generation: int = 1, job: str = "x", workers: str = "fast-0", **over: object) -> LaunchGang:
        fields: dict[str, object] = {
            "job_id": job,
            "generation": generation,
            "user": "ann",
            "argv": program("mlp"),
            "env": {},
            "accelerator_type": workers.split("-", maxsplit=1)[0],
            "worker_ids": tuple(workers.split()),
            "resource": f"gavel/gang-{job}-{generation}",
            "lease_expires_at_s": 10.0,
            "start_step": 0,
            "total_steps": 100,
            "checkpoint": None,
        }
        return LaunchGang(**(fields | over))  # type: ignore[arg-type]

    def do(self, *instructions: Instruction) -> None:
        self.cluster.execute(instructions)

    def see(self, at_s: float | None = None) -> GangSeen:
        if at_s is not None:
            self.clock.wait(at_s)
        (gang,) = self.cluster.observe().gangs
        return gang


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_is_a_cluster_backend(scene: Scene) -> None:
    backend: ClusterBackend = scene.cluster
    assert backend.observe().cluster == a_cluster(fast=2, slow=1)
    assert backend.read_log("x", offset=7) == (b"", 7)
    backend.close()


def test_a_gang_runs_at_its_rate_and_checkpoints_its_last_whole_step_at_lease_end(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch(lease_expires_at_s=9.0))
    assert scene.cluster.next_event_at_s() == 9.0
    gang = scene.see(at_s=9.0)
    assert (gang.state, gang.started_at_s, gang.ended_at_s) == (GangState.ENDED, 0.0, 9.0)
    assert gang.exit is not None and gang.exit.outcome is GangOutcome.PREEMPTED
    (report,) = gang.reports
    assert (report.kind, report.step, report.checkpoint) == (ReportKind.CHECKPOINT, 22, "1-22")
    assert report.steps / report.seconds == pytest.approx(2.5)


def test_a_gang_that_does_its_last_step_exits_with_zero_at_that_instant(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch(start_step=90))
    assert scene.cluster.next_event_at_s() == 4.0
    gang = scene.see(at_s=7.0)
    assert gang.ended_at_s == 4.0
    assert gang.exit is not None and (gang.exit.outcome, gang.exit.exit_code) == (GangOutcome.EXITED, 0)
    assert [(each.kind, each.step, each.steps) for each in gang.reports] == [(ReportKind.FINISHED, 100, 10)]


def test_nothing_starts_while_the_gangs_resource_is_withheld(scene: Scene) -> None:
    scene.do(scene.launch())
    gang = scene.see(at_s=3.0)
    assert (gang.state, gang.waiting_for) == (GangState.WAITING, "gavel/gang-x-1 is not there (needs 1)")
    scene.do(scene.resource())
    assert scene.see().started_at_s == 3.0


def test_a_gang_waits_for_a_worker_that_another_holds_and_starts_when_that_one_ends(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch(lease_expires_at_s=4.0))
    scene.do(scene.resource(job="y"), scene.launch(job="y"))
    scene.clock.wait(6.0)
    seen = {gang.job_id: gang for gang in scene.cluster.observe().gangs}
    assert (seen["x"].ended_at_s, seen["y"].started_at_s) == (4.0, 4.0)
    assert seen["y"].reports[-1].step == 5


def test_a_gang_of_two_starts_whole_or_not_at_all(scene: Scene) -> None:
    scene.do(scene.resource(job="y"), scene.launch(job="y", workers="fast-1", lease_expires_at_s=5.0))
    scene.do(scene.resource(capacity=2), scene.launch(workers="fast-0 fast-1"))
    assert scene.cluster.table.free("node/worker-fast-0", "node-0", 0.0) == HALVES
    scene.clock.wait(6.0)
    seen = {gang.job_id: gang for gang in scene.cluster.observe().gangs}
    assert seen["x"].started_at_s == 5.0
    assert seen["x"].reports[-1].step == 4


def test_an_extended_lease_goes_on_in_place_and_keeps_the_fraction_of_a_step(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch(lease_expires_at_s=1.0))
    scene.do(ExtendLease(job_id="x", generation=1, expires_at_s=2.0))
    assert scene.see(at_s=1.0).reports[-1].step == 2
    gang = scene.see(at_s=2.0)
    assert (gang.started_at_s, gang.ended_at_s, gang.reports[-1].step) == (0.0, 2.0, 5)


def test_a_stopped_gang_checkpoints_and_its_token_never_starts_again(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch())
    scene.clock.wait(3.0)
    scene.do(StopGang(job_id="x", generation=1, reason="cancelled"))
    gang = scene.see()
    assert gang.exit is not None and gang.exit.message == "cancelled"
    assert gang.reports[-1].checkpoint == "1-7"
    scene.do(ForgetGang(job_id="x", generation=1), scene.launch())
    assert scene.cluster.observe().gangs == ()


def test_a_stop_that_overtakes_its_launch_wins(scene: Scene) -> None:
    scene.do(StopGang(job_id="x", generation=1), scene.resource(), scene.launch())
    assert scene.cluster.observe().gangs == ()


def test_launching_twice_or_with_an_older_token_is_harmless(scene: Scene) -> None:
    scene.do(scene.resource(generation=2), scene.launch(generation=2))
    scene.do(scene.launch(generation=2, start_step=50), scene.launch(generation=1))
    assert scene.see(at_s=4.0).reports[-1].step == 10


def test_stale_words_about_resources_and_gangs_that_are_gone_change_nothing(scene: Scene) -> None:
    scene.do(scene.resource(capacity=2), scene.launch())
    scene.do(scene.resource(capacity=1))
    scene.do(ExtendLease(job_id="x", generation=7, expires_at_s=99.0), StopGang(job_id="z", generation=1))
    scene.do(ForgetGang(job_id="x", generation=1))  # it still runs
    assert scene.see().state is GangState.RUNNING
    assert [each.capacity for each in scene.cluster.observe().resources] == [2]


def test_a_gang_that_waits_past_its_lease_ends_without_having_run(scene: Scene) -> None:
    scene.do(scene.launch(lease_expires_at_s=5.0))
    scene.clock.wait(6.0)
    scene.do(scene.resource())
    gang = scene.see()
    assert (gang.started_at_s, gang.ended_at_s, gang.reports) == (None, 5.0, ())
    assert gang.exit is not None and gang.exit.outcome is GangOutcome.PREEMPTED


def test_a_launch_that_arrives_after_its_lease_never_runs(scene: Scene) -> None:
    scene.clock.wait(11.0)
    scene.do(scene.resource(), scene.launch(lease_expires_at_s=10.0))
    gang = scene.see()
    assert (gang.state, gang.started_at_s, gang.reports) == (GangState.ENDED, None, ())


def test_a_kind_without_a_throughput_does_not_start_and_says_so(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch(argv=program("gpt")))
    gang = scene.see()
    assert gang.exit is not None and gang.exit.outcome is GangOutcome.NOT_STARTED
    assert gang.exit.message == "no throughput is known of kind gpt on 1 fast"


def test_a_kind_that_has_a_throughput_on_another_type_only_does_not_fit_here() -> None:
    scene = Scene(throughput={("gpt", 1, "slow"): 1.0})
    scene.do(scene.resource(), scene.launch(argv=program("gpt")))
    gang = scene.see()
    assert gang.exit is not None and evidence_of(gang.exit).startswith("CannotRunHere: kind gpt on 1 fast")


def test_a_start_costs_the_switch_before_the_first_step() -> None:
    scene = Scene(switch_cost_s=2.0)
    scene.do(scene.resource(), scene.launch(total_steps=10))
    assert scene.see(at_s=1.9).reports == ()
    first = scene.see(at_s=2.0).reports
    assert [(report.step, report.steps, report.startup_s) for report in first] == [(0, 0, 2.0)], "its training begins"
    assert scene.see(at_s=8.0).ended_at_s == 6.0


def test_reports_are_handed_over_once_and_numbered_on(scene: Scene) -> None:
    scene.do(scene.resource(), scene.launch())
    taken = [scene.see(at_s=at_s).reports for at_s in (2.0, 2.0, 4.0, 10.0)]
    assert [[each.sequence for each in reports] for reports in taken] == [[1, 2], [], [3], [4]]
    assert sum(each.steps for reports in taken for each in reports) == 25


def shared(job: str, partner: str | None, **over: object) -> LaunchGang:
    fields: dict[str, object] = {"lease_expires_at_s": 100.0, "shares_with": partner}
    return Scene().launch(job=job, **(fields | over))


def test_gangs_of_a_packed_pair_run_on_the_same_worker_at_their_pair_rates() -> None:
    """x and y make 2 and 1.5 steps/s beside each other; when x has done its 20 steps, y goes on at 2.5."""
    clock = ManualClock()
    colocated = {("mlp", "cnn", 1, "fast"): 2.0, ("cnn", "mlp", 1, "fast"): 1.5}
    rates = THROUGHPUT | {("cnn", 1, "fast"): 2.5}
    cluster = VirtualCluster(a_cluster(fast=1), rates, clock, colocated=colocated)
    resources = [Scene().resource(job=job, until_s=100.0) for job in "xy"]
    y = shared("y", "x", argv=program("cnn"), total_steps=40)
    cluster.execute([*resources, shared("x", "y", total_steps=20), y])
    assert {gang.state for gang in cluster.observe().gangs} == {GangState.RUNNING}
    ended = {}
    while (at_s := cluster.next_event_at_s()) < 1000.0:
        clock.wait(at_s)
        for gang in cluster.observe().gangs:
            if gang.state is GangState.ENDED:
                ended.setdefault(gang.job_id, gang.ended_at_s)
    assert ended == {"x": pytest.approx(10.0), "y": pytest.approx(10.0 + 25 / 2.5)}


def test_a_gang_makes_room_for_its_partner_and_for_nobody_else() -> None:
    clock = ManualClock()
    colocated = {("mlp", "mlp", 1, "fast"): 1.0}
    cluster = VirtualCluster(a_cluster(fast=1), THROUGHPUT, clock, colocated=colocated)
    cluster.execute([Scene().resource(job=job, until_s=100.0) for job in "xyz"])
    cluster.execute([shared("x", None), shared("z", None), shared("y", "x")])
    assert [gang.state for gang in cluster.observe().gangs] == [GangState.RUNNING, *[GangState.WAITING] * 2]
    clock.wait(4.0)
    cluster.execute([ExtendLease(job_id="x", generation=1, expires_at_s=100.0, shares_with="y")])
    seen = {gang.job_id: gang for gang in cluster.observe().gangs}
    assert [seen[job].state for job in "xyz"] == [GangState.RUNNING, GangState.RUNNING, GangState.WAITING]
    clock.wait(14.0)
    steps = {gang.job_id: sum(report.steps for report in gang.reports) for gang in cluster.observe().gangs}
    assert steps == {"x": 10, "y": 10, "z": 0}, "x made 10 more at the rate of a pair, after 10 on its own"


@pytest.mark.parametrize("lease_ends_at_s", [9.0, 10.5])
def test_reports_account_for_all_the_time_of_a_gang_whose_speed_changed_within_a_step(lease_ends_at_s: float) -> None:
    """x makes 2.5 steps/s, from the middle of a step on one in 3 s, then 2.5 again: that is no cost of its stop."""
    clock = ManualClock()
    cluster = VirtualCluster(a_cluster(fast=1), THROUGHPUT, clock, colocated={("mlp", "mlp", 1, "fast"): 1 / 3})
    cluster.execute([Scene().resource(job=job, until_s=100.0) for job in "xy"])
    x = shared("x", "y", lease_expires_at_s=lease_ends_at_s)
    cluster.execute([x])
    clock.wait(4.2)
    cluster.execute([shared("y", "x", lease_expires_at_s=lease_ends_at_s, total_steps=2)])
    clock.wait(lease_ends_at_s)
    (gang,) = [gang for gang in cluster.observe().gangs if gang.job_id == "x"]
    reported_s, steps = sum(each.seconds for each in gang.reports), sum(each.steps for each in gang.reports)
    assert steps == int(4.2 * 2.5 + min(lease_ends_at_s - 4.2, 6.0) / 3 + max(0.0, lease_ends_at_s - 10.2) * 2.5)
    assert 0.0 <= lease_ends_at_s - reported_s <= reported_s / steps, "all but the step that was cut off"


def test_a_slow_step_that_is_cut_off_is_reported_as_training() -> None:
    """After 4 s at 2.5 steps/s a partner comes; the 2.9 s after that are not enough for a step at one in 3 s."""
    clock = ManualClock()
    cluster = VirtualCluster(a_cluster(fast=1), THROUGHPUT, clock, colocated={("mlp", "mlp", 1, "fast"): 1 / 3})
    cluster.execute([Scene().resource(job=job, until_s=100.0) for job in "xy"])
    cluster.execute([shared("x", "y", lease_expires_at_s=6.9)])
    clock.wait(4.0)
    cluster.execute([shared("y", "x")])
    clock.wait(6.9)
    (gang,) = [gang for gang in cluster.observe().gangs if gang.job_id == "x"]
    assert [(each.steps, each.checkpoint) for each in gang.reports] == [(10, None), (0, "1-10"), (0, None)]
    assert sum(each.seconds for each in gang.reports) == pytest.approx(6.9)
