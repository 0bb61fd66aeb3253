"""Bugs to plant in the production code: each takes away one rule, and the simulation has to notice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import patch

from gavel.backends import lease_rules
from gavel.backends.folder_backend import FolderBackend
from gavel.backends.nodes import numbering
from gavel.backends.nodes.gang import NodesGang, Part
from gavel.backends.nodes.lost import LostParts
from gavel.backends.ray.backend import RayBackend
from gavel.backends.reports import ReportReader
from gavel.faults import node, shard
from gavel.faults.clocks import EPOCH_S
from gavel.mechanism import driver
from gavel.mechanism.cluster import reconcile
from gavel.mechanism.driver import Driver
from gavel.mechanism.jobs import infeasibility, lifecycle
from gavel.mechanism.jobs.reservations import Calendar
from gavel.mechanism.observing import charging, observation
from gavel.mechanism.planning import decision, non_preemptible
from gavel.mechanism.services import decision as services_decision
from gavel.mechanism.services import tending
from gavel.mechanism.tick import Tick
from gavel.policies import inline
from gavel.types import AllocationProblem, Job, Lease, OperationState
from tests.faults import planted_in_regions, planted_in_stores, planted_of_operators  # noqa: F401  planted, too
from tests.faults.planting import PLANTED, SURVIVORS, instead, planted

__all__ = ["PLANTED", "SURVIVORS"]

# --- the scheduler ----------------------------------------------------------------------------------------------


@planted
def a_new_gang_does_not_wait_for_the_old_one() -> Any:
    def may_start(job: Job, lease: Lease, gangs: Mapping[str, Any]) -> bool:
        there = any(gang.generation >= lease.generation for gang in gangs.get(job.id, ()))
        return not there and job.generation <= lease.generation

    return instead(reconcile, "_may_start", may_start)


@planted
def gangs_are_started_before_the_commit() -> Any:
    original = Driver._commit

    def commit(self: Driver, tick: Tick) -> None:
        decision = reconcile.reconcile(
            tick.round_plans, tick.snapshot.jobs, tick.seen, lease_grace_s=self._settings.lease_grace_s
        )
        self._backend.execute(
            [
                each
                for lease in decision.launches
                for each in (
                    reconcile.gang_resources(lease, self._layout.node_of, lease_grace_s=self._settings.lease_grace_s),
                    reconcile.launch(lease, tick.jobs[lease.job_id]),
                )
                if lease.job_id in tick.jobs
            ]
        )
        original(self, tick)

    return instead(Driver, "_commit", commit)


@planted
def an_operation_is_lost() -> Any:
    """It is noted as done, and its effect is not."""
    original = Tick.take

    def take(self: Tick, command: Any, outcome: Any) -> None:
        original(self, command, replace(outcome, nodes=()))
        self.operations[-1:] = [
            replace(each, state=OperationState.PENDING) if each.kind == "node.cordon" else each
            for each in self.operations[-1:]
        ]

    return instead(Tick, "take", take)


@planted
def reports_of_an_older_gang_count() -> Any:
    original = lifecycle.take_reports

    def take_reports(job: Job, event: Any) -> Job:
        return original(job, replace(event, generation=job.generation))

    original_apply = observation._JobUpdates.apply

    def apply(self: Any) -> None:
        for gang in self.tick.seen.gangs:
            job = self.tick.jobs.get(gang.job_id)
            if job is not None and gang.generation < job.generation and gang.reports:
                after = take_reports(job, _reported(gang, self.tick.now_s))
                if after is not job:
                    self.tick.put(after)
        original_apply(self)

    return instead(observation._JobUpdates, "apply", apply)


def _reported(gang: Any, now_s: float) -> Any:
    from gavel.mechanism.jobs.events import Reported

    shifted = tuple(replace(each, sequence=each.sequence + 1000) for each in gang.reports)
    return Reported(at_s=now_s, generation=gang.generation, reports=shifted, started_at_s=gang.started_at_s)


@planted
def a_lost_gang_is_not_noticed() -> Any:
    return instead(observation._JobUpdates, "_lose", lambda self, job: None)


@planted
@contextmanager
def a_wrong_answer_of_a_solver_is_taken() -> Iterator[None]:
    def accepted(answer: Any, problem: AllocationProblem, policy: str) -> Any:
        return answer

    with instead(inline, "accepted", accepted), instead(decision, "check_allocation", lambda allocation: None):
        yield


@planted
def uncommitted_reports_are_dropped() -> Any:
    """Both memories of reports that were handed over: the driver's, and the backend's after the gang's end."""

    def handed(self: Any, key: Any, kept: Any, fresh: Sequence[Any], *, has_ended: bool) -> tuple[Any, ...]:
        return tuple(fresh)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            instead(FolderBackend, "_handed", handed),
            instead(driver.Exchange, "with_uncommitted", lambda self, seen: seen),
        ):
            yield

    return both()


# --- the backend ------------------------------------------------------------------------------------------------


@planted
def leases_are_counted_by_the_wall_clock() -> Any:
    return instead(FolderBackend, "_boottime_s", lambda self, at_s: at_s - EPOCH_S + 5000.0)


@planted
def a_lost_node_is_taken_for_dead() -> Any:
    return instead(LostParts, "may_run", lambda self, key: "")


@planted
@contextmanager
def a_gang_on_a_node_that_is_away_is_forgotten() -> Iterator[None]:
    def gangs_away(*_: object, **__: object) -> frozenset[Any]:
        return frozenset()

    with instead(observation, "gangs_away", gangs_away), instead(reconcile, "gangs_away", gangs_away):
        yield


@planted
def workers_are_numbered_by_each_service() -> Any:
    return instead(numbering, "_numbers_in", lambda node_of: {})


@planted
def a_silent_node_is_taken_for_dead() -> Any:
    original = NodesGang.look

    def look(self: NodesGang, grace_s: float, gone: Mapping[str, str], may_speak: Any, has_answered: Any) -> list[Part]:
        for part in self.parts.values():
            part.lease_boottime_s -= 15.0
        doubtful = original(self, grace_s, gone, may_speak, has_answered)
        for part in self.parts.values():
            part.lease_boottime_s += 15.0
        return doubtful

    return instead(NodesGang, "look", look)


@planted
def a_part_of_a_gang_is_left_out() -> Any:
    original = RayBackend._divide

    def divide(self: RayBackend, gang: NodesGang) -> bool:
        is_divided = original(self, gang)
        for name in [*gang.parts][1:]:
            del gang.parts[name]
        return is_divided

    return instead(RayBackend, "_divide", divide)


@planted
def a_checkpoint_is_accepted_that_does_not_exist() -> Any:
    def checkpoint(self: ReportReader, name: object, kind: object, step: int) -> object:
        return name

    return instead(ReportReader, "_checkpoint", checkpoint)


@planted
def the_accepted_checkpoint_is_deleted() -> Any:
    original = RayBackend._keep_checkpoint

    def keep(self: RayBackend, instruction: Any) -> None:
        generation, _, step = instruction.checkpoint.partition("-")
        original(self, replace(instruction, checkpoint=f"{int(generation) + 1}-{int(step) + 1}"))
        original(self, replace(instruction, checkpoint=f"{int(generation) + 2}-{int(step) + 2}"))

    def delete(folder: Any, checkpoint: str) -> None:
        for path in folder.iterdir() if folder.is_dir() else ():
            (path / "step").unlink()
            path.rmdir()

    @contextmanager
    def both() -> Iterator[None]:
        with patch("gavel.backends.nodes.transfers.keep_checkpoint", delete):
            yield

    return both()


@planted
def a_session_gives_way() -> Any:
    return instead(non_preemptible, "_holds_on", lambda tick, lease: False)


@planted
def a_gang_starts_with_a_lease_that_is_nearly_over() -> Any:
    """It is extended once it was seen."""
    return instead(reconcile, "replace", lambda lease, **_: lease)


@planted
def a_plan_that_fails_fails_its_job() -> Any:
    return instead(infeasibility, "failure_under_plan", lambda *_: "")


@planted
def a_size_is_not_written_down() -> Any:
    return instead(lifecycle, "resized", lambda job, size: job)


@planted
def a_service_keeps_its_replicas() -> Any:
    """It is cancelled, and they go on."""
    return instead(tending, "_dissolve", lambda tick, replicas: inf)


@planted
def a_replica_leaves_before_another_is_ready() -> Any:
    def leaving(wanted: Any, staying: Sequence[Any], good: Sequence[Any], room: int) -> list[Any]:
        return [each for each in staying if each not in good]

    return instead(services_decision, "_leaving", leaving)


# --- the nodes --------------------------------------------------------------------------------------------------


@planted
def a_node_obeys_a_service_that_was_followed() -> Any:
    return instead(node, "is_refused", lambda order_epoch, newest_epoch: False)


@planted
def a_node_has_no_fence() -> Any:
    original = node.may_launch

    def may_launch(launch: Any, *, is_over: bool, fence: int, live: Any) -> bool:
        return original(launch, is_over=is_over, fence=0, live=live)

    return instead(node, "may_launch", may_launch)


@planted
def a_node_starts_what_is_late() -> Any:
    original = node.may_launch

    def may_launch(launch: Any, *, is_over: bool, fence: int, live: Any) -> bool:
        return original(launch, is_over=False, fence=fence, live=live)

    return instead(node, "may_launch", may_launch)


@planted
def no_lease_ends() -> Any:
    def end_reason(reason: str, *, is_over: bool, is_stopped: bool) -> str:
        return lease_rules.end_reason(reason, is_over=False, is_stopped=is_stopped)

    return instead(shard, "end_reason", end_reason)


@planted
def a_lease_that_is_over_is_extended() -> Any:
    @contextmanager
    def both() -> Iterator[None]:
        def end_reason(reason: str, *, is_over: bool, is_stopped: bool) -> str:
            return lease_rules.end_reason("", is_over=is_over, is_stopped=is_stopped)

        with (
            instead(shard, "extends", lambda now_s, expires_s, wanted_s: wanted_s != expires_s),
            instead(shard, "end_reason", end_reason),
        ):
            yield

    return both()


@planted
def every_failure_is_the_programs_fault() -> Any:
    return instead(shard, "is_preemption", lambda exit_code, *, is_ending, is_over: False)


@planted
def a_gang_that_has_ended_is_never_forgotten() -> Any:
    return instead(RayBackend, "_forget", lambda self, key: None)


# --- time -------------------------------------------------------------------------------------------------------


@planted
def time_after_an_end_that_nobody_saw_is_kept() -> Any:
    original = lifecycle.account_time

    def account_time(job: Job, *args: Any) -> Job:
        after = original(job, *args)
        return job if sum(after.received_s.values()) < sum(job.received_s.values()) else after

    return instead(lifecycle, "account_time", account_time)


@planted
def time_is_accounted_for_from_the_start_each_time() -> Any:
    original = lifecycle.account_time

    def account_time(job: Job, *args: Any) -> Job:
        return original(replace(job, accounted_until_s=0.0), *args)

    return instead(lifecycle, "account_time", account_time)


@planted
def instants_of_jobs_stay_when_a_clock_is_set() -> Any:
    return instead(lifecycle, "by_clock_of", lambda gang, job: job)


@planted
def tiers_are_charged_time_that_is_taken_back() -> Any:
    original = charging._newly_held

    def newly_held(before: Job | None, after: Job) -> Iterator[Any]:
        return (each for each in original(before, after) if each.seconds > 0)

    return instead(charging, "_newly_held", newly_held)


# --- reservations -----------------------------------------------------------------------------------------------


@planted
def a_reserved_session_gets_no_lease() -> Any:
    def only_kept(*args: object, **_: object) -> object:
        return args[2]

    return instead(decision, "with_reserved_leases", only_kept)


@planted
def a_gang_may_still_be_there_when_a_reservation_begins() -> Any:
    return instead(Calendar, "types_later", lambda self, claim: list(claim.types))


@planted
def a_reservation_is_accepted_without_a_look() -> Any:
    return instead(Calendar, "types", lambda self, claim: list(claim.types))


@planted
def a_round_does_not_end_when_a_reservation_begins() -> Any:
    return instead(decision, "duration_s", lambda starts_at_s, usual_s, _: usual_s)
