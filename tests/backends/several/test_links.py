"""A region whose link is cut: it holds up no other, its gangs go on, and nothing of it is started a second time."""

from dataclasses import replace

import pytest

from gavel.backends.several.calls import CallThread
from gavel.backends.several.region import Region
from gavel.clock import ManualClock
from gavel.errors import BackendUnavailable, NotFound
from gavel.ports import CordonNode, ExtendLease, ForgetGang, KeepCheckpoint, SetResources, StopGang
from gavel.types import GangOutcome, GangSeen, GangState
from tests.backends.several.launches import gang
from tests.backends.several.links import GRACE_S, SILENT_S, Services, State

CUT = pytest.mark.parametrize("cut", [State.FAILS, State.HANGS])
MARGIN_S = 1.0


def gang_of(services: Services, job: str, generation: int = 1) -> GangSeen | None:
    gangs = services.seen().gangs
    return next((each for each in gangs if (each.job_id, each.generation) == (job, generation)), None)


def state(services: Services, job: str, generation: int = 1) -> GangState | None:
    gang = gang_of(services, job, generation)
    return gang.state if gang else None


def launch(services: Services, job: int, region: str, *, lasts_s: float = 60.0, generation: int = 1) -> None:
    services.backend.execute(gang(job, generation, region, services.clock.now_s() + lasts_s))


def silence(services: Services, region: str, cut: State) -> None:
    """Cut the link of a region for so long that it counts as cut."""
    services.lines[region].become(cut)
    services.seen()
    services.clock.advance(SILENT_S)


def regions(services: Services) -> set[str]:
    return {node.region for node in services.seen().cluster.nodes}


@CUT
def test_a_region_that_is_cut_has_no_nodes_and_its_gangs_go_on(services: Services, cut: State) -> None:
    launch(services, 0, "eu")
    before = gang_of(services, "j0")
    silence(services, "eu", cut)
    launch(services, 1, "us")
    assert regions(services) == {"us"}
    assert (state(services, "j0"), state(services, "j1")) == (GangState.RUNNING, GangState.RUNNING)
    services.lines["eu"].become(State.UP)
    services.seen()
    after = gang_of(services, "j0")
    assert regions(services) == {"eu", "us"}
    assert before is not None and after is not None
    assert (after.state, after.started_at_s, after.worker_ids) == (
        GangState.RUNNING,
        before.started_at_s,
        before.worker_ids,
    )
    assert len(services.lines["eu"].cluster.observe().gangs) == 1


@CUT
def test_a_short_silence_moves_nothing(services: Services, cut: State) -> None:
    services.lines["eu"].become(cut)
    services.seen()
    services.clock.advance(SILENT_S / 2)
    assert regions(services) == {"eu", "us"}


@CUT
def test_who_asks_is_told_since_when_and_why(services: Services, cut: State) -> None:
    since_s = services.clock.now_s()
    silence(services, "eu", cut)
    services.seen()
    eu, us = services.backend.statuses()
    assert (eu.name, eu.since_s, us.problem) == ("eu", since_s, "")
    assert eu.problem == ("the link is cut" if cut is State.FAILS else "it does not answer")
    (note,) = services.backend.notes()
    assert note.startswith("Region eu (simulated) cannot be reached since 2001-09-09 01:46:40 UTC: ")


@CUT
def test_a_gang_of_a_cut_region_is_lost_once_its_lease_is_over(services: Services, cut: State) -> None:
    launch(services, 0, "eu", lasts_s=30.0)
    silence(services, "eu", cut)
    services.clock.advance(30.0 - SILENT_S + GRACE_S)
    assert state(services, "j0") is GangState.RUNNING
    services.clock.advance(MARGIN_S)
    lost = gang_of(services, "j0")
    assert lost is not None and lost.exit is not None
    assert (lost.state, lost.exit.outcome) == (GangState.ENDED, GangOutcome.LOST)
    services.backend.execute([ForgetGang(job_id="j0", generation=1)])
    assert gang_of(services, "j0") is None
    services.lines["eu"].become(State.UP)
    seen = [each for _ in range(2) for each in services.seen().gangs]
    assert [each.exit.outcome for each in seen if each.exit] == [GangOutcome.PREEMPTED] * len(seen)
    assert any(report.checkpoint for each in seen for report in each.reports)


@CUT
@pytest.mark.parametrize("restarts", [False, True])
def test_no_gang_starts_elsewhere_while_one_of_its_job_may_live(services: Services, cut: State, restarts: bool) -> None:
    """The lease as it was extended counts, for the next service, too."""
    launch(services, 0, "eu", lasts_s=5.0)
    until_s = services.clock.now_s() + 40.0
    services.backend.execute([ExtendLease(job_id="j0", generation=1, expires_at_s=until_s)])
    silence(services, "eu", cut)
    if restarts:
        services.restart()
        services.seen()
    launch(services, 0, "us", generation=2, lasts_s=100.0)
    waiting = gang_of(services, "j0", 2)
    assert waiting is not None
    assert waiting.waiting_for == "an earlier gang of the job may run in region eu until its lease ends"
    services.clock.advance(until_s + GRACE_S - services.clock.now_s())
    assert state(services, "j0", 2) is GangState.WAITING
    assert services.lines["us"].live() == set()
    services.clock.advance(MARGIN_S)
    services.seen()
    assert state(services, "j0", 2) is GangState.RUNNING
    assert services.lines["us"].live() == {"j0"}


@CUT
@pytest.mark.parametrize("restarts", [False, True])
def test_a_wall_clock_that_is_set_ahead_ends_no_lease_of_a_cut_region(
    services: Services, cut: State, restarts: bool
) -> None:
    """On its nodes leases go by a clock that nobody sets, so the gang runs on, and is known to the next service."""
    launch(services, 0, "eu", lasts_s=60.0)
    silence(services, "eu", cut)
    services.clock.step(3600.0)
    if restarts:
        services.restart()
    assert state(services, "j0") is GangState.RUNNING
    launch(services, 0, "us", generation=2, lasts_s=600.0)
    assert state(services, "j0", 2) is GangState.WAITING and services.lines["us"].live() == set()
    services.clock.advance(60.0 + GRACE_S + MARGIN_S)
    services.seen()
    assert state(services, "j0", 2) is GangState.RUNNING and services.lines["us"].live() == {"j0"}


def test_a_lost_gang_of_which_its_region_tells_that_it_ended_holds_up_no_other(services: Services) -> None:
    """Only one of which nobody tells may run until its lease is over."""
    launch(services, 0, "eu", lasts_s=600.0)
    services.seen()
    services.lines["eu"].cluster.lose_node("node-0")
    lost = gang_of(services, "j0")
    assert lost is not None and lost.exit is not None and lost.exit.outcome is GangOutcome.LOST
    launch(services, 0, "us", generation=2, lasts_s=600.0)
    assert state(services, "j0", 2) is GangState.RUNNING


@CUT
def test_what_is_shown_of_a_cut_region_follows_a_clock_that_is_set_ahead(services: Services, cut: State) -> None:
    """Else the gang would seem to have run for an hour, and its job would be charged for that."""
    launch(services, 0, "eu", lasts_s=60.0)
    services.clock.advance(5.0)
    before = gang_of(services, "j0")
    assert before is not None and before.started_at_s is not None
    silence(services, "eu", cut)
    services.clock.step(3600.0)
    shown = gang_of(services, "j0")
    assert shown is not None and shown.started_at_s == pytest.approx(before.started_at_s + 3600.0)
    services.clock.advance(60.0 + GRACE_S + MARGIN_S)
    lost = gang_of(services, "j0")
    assert lost is not None and lost.ended_at_s is not None and lost.started_at_s == shown.started_at_s
    assert lost.ended_at_s - lost.started_at_s == pytest.approx(60.0 + GRACE_S + MARGIN_S, abs=1.0)


def test_a_gang_that_is_held_ends_with_its_lease_and_when_it_is_stopped(services: Services) -> None:
    launch(services, 0, "eu")
    launch(services, 1, "eu")
    launch(services, 0, "us", generation=2, lasts_s=5.0)
    launch(services, 1, "us", generation=2)
    services.backend.execute([StopGang(job_id="j1", generation=2, reason="enough")])
    services.clock.advance(5.0)
    for job, message in (("j0", "its lease ended while it waited"), ("j1", "enough")):
        ended = gang_of(services, job, 2) if services.seen() else None
        assert ended is not None and ended.exit is not None
        assert (ended.exit.outcome, ended.exit.message) == (GangOutcome.PREEMPTED, message)
    services.backend.execute([ForgetGang(job_id=job, generation=2) for job in ("j0", "j1")])
    assert gang_of(services, "j0", 2) is None


def test_a_gang_that_was_stopped_makes_way_at_once(services: Services) -> None:
    launch(services, 0, "eu")
    services.seen()
    services.backend.execute([StopGang(job_id="j0", generation=1)])
    assert state(services, "j0") is GangState.ENDED
    launch(services, 0, "us", generation=2)
    assert state(services, "j0", 2) is GangState.RUNNING


@CUT
def test_what_a_region_could_not_be_told_it_is_told_later(services: Services, cut: State) -> None:
    launch(services, 0, "eu", lasts_s=30.0)
    services.seen()
    services.lines["eu"].become(cut)
    until_s = services.clock.now_s() + 300.0
    services.backend.execute([ExtendLease(job_id="j0", generation=1, expires_at_s=until_s)])
    services.lines["eu"].become(State.UP)
    services.seen()
    services.clock.advance(100.0)
    services.seen()
    assert state(services, "j0") is GangState.RUNNING


def test_a_launch_that_did_not_arrive_is_not_made_later(services: Services) -> None:
    services.lines["eu"].become(State.FAILS)
    launch(services, 0, "eu")
    services.lines["eu"].become(State.UP)
    services.seen()
    assert gang_of(services, "j0") is None
    assert services.lines["eu"].live() == set()
    launch(services, 0, "eu")
    assert state(services, "j0") is GangState.RUNNING


def test_a_service_that_starts_while_a_region_is_cut_waits_for_it_a_while_only(services: Services) -> None:
    launch(services, 0, "eu")
    services.seen()
    services.lines["eu"].become(State.FAILS)
    services.restart()
    with pytest.raises(BackendUnavailable, match="waiting for regions to answer: eu"):
        services.backend.observe()
    services.clock.advance(SILENT_S)
    assert regions(services) == {"us"}
    assert state(services, "j0") is GangState.RUNNING
    services.lines["eu"].become(State.UP)
    services.seen()
    assert regions(services) == {"eu", "us"}


def test_a_cordon_is_that_of_a_node_s_own_region_and_is_not_made_later(services: Services) -> None:
    """1 by the names of that region, 2 one that did not arrive is not kept: who decides asks again, or does not."""
    own = services.lines["eu"].cluster
    own.cordons = {own.observe().cluster.nodes[0].name: False}
    (name,) = services.seen().cordons
    services.backend.execute([CordonNode(node=name, is_cordoned=True)])
    assert services.seen().cordons == {name: True} and name.endswith("@eu")
    assert [*own.cordons.values()] == [True] and not services.lines["us"].cluster.cordons
    services.lines["eu"].become(State.FAILS)
    services.backend.execute([CordonNode(node=name, is_cordoned=False)])
    services.lines["eu"].become(State.UP)
    assert services.seen().cordons == {name: True}


def test_names_without_a_region_and_what_a_backend_refuses_are_told(services: Services) -> None:
    resource, start = gang(0, 1, "eu", services.clock.now_s() + 60.0)
    assert isinstance(resource, SetResources)
    with pytest.raises(NotFound, match="node-0@ap is in no region; there are eu, us"):
        services.backend.execute(gang(0, 1, "ap", services.clock.now_s() + 60.0))
    elsewhere = tuple(replace(each, node="other@eu") for each in resource.resources)
    with pytest.raises(NotFound, match="other"):
        services.backend.execute([SetResources(resources=elsewhere)])
    services.backend.execute([resource, start, KeepCheckpoint(job_id="j0", checkpoint="1-1")])
    assert state(services, "j0") is GangState.RUNNING


def test_a_backend_at_fault_is_a_region_that_cannot_be_reached() -> None:
    def opened() -> None:
        raise RuntimeError("no such thing")

    region = Region("eu", opened, CallThread("eu"), ManualClock())  # type: ignore[arg-type]
    region.ask()
    assert region.awaited is not None
    region.awaited.result(10.0)
    answer = region.take()
    assert answer is not None and answer.seen is None
    assert region.problem == "RuntimeError: no such thing"
    region.close()
    region.wait_closed()
