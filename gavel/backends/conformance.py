"""What every backend must show, as checks that anybody can run on theirs: `for check in CHECKS: check(harness)`.

A check takes a fresh `Harness`: the backend and the means to make things happen around it. Real and virtual clusters
pass the same checks; a harness names those its cluster cannot be put through in `cannot`, with the reason.
"""

from itertools import permutations

from gavel.backends.conformance_nodes import CHECKS as CHECKS_OF_NODES
from gavel.backends.conformance_nodes import Check
from gavel.backends.conformance_results import CHECKS as CHECKS_OF_RESULTS
from gavel.backends.harness import (
    Behaviour,
    Harness,
    exit_of,
    find,
    gang,
    is_in,
    launch,
    resource,
    state_of,
    stop,
)
from gavel.ports import ExtendLease, ForgetGang, Instruction, LaunchGang, PrepareGang, SetResources
from gavel.types import GangOutcome, GangState, Observation

CHECKS: list[Check] = [*CHECKS_OF_NODES, *CHECKS_OF_RESULTS]


def conforms(check: Check) -> Check:
    """Add a check to the suite."""
    CHECKS.append(check)
    return check


# --- starting ---------------------------------------------------------------------------------------------------


@conforms
def a_gang_waits_until_its_resource_appears(harness: Harness) -> None:
    """1: task first, then resource. Without it nothing starts, and the gang reports what it waits for."""
    set_resource, start = gang(harness, "j1")
    harness.backend.execute([start])
    waiting = find(harness.backend.observe(), "j1")
    assert waiting is not None
    assert waiting.state is GangState.WAITING
    assert "gang-j1-1" in waiting.waiting_for
    assert harness.processes() == 0
    harness.backend.execute([set_resource])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))


@conforms
def a_gang_starts_when_its_resource_is_there(harness: Harness) -> None:
    """2: resource first, then task."""
    for instruction in gang(harness, "j1"):
        harness.backend.execute([instruction])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))


@conforms
def a_worker_holds_one_gang_at_a_time(harness: Harness) -> None:
    """3, 25, 26: many gangs race for one worker; every view shows at most one on it, and each gets its turn."""
    jobs = [f"j{index}" for index in range(8)]
    for job_id in jobs:
        harness.backend.execute(gang(harness, job_id, behaviour=Behaviour.FINISHES))

    def all_ended(seen: Observation) -> bool:
        assert sum(each.state is GangState.RUNNING for each in seen.gangs) <= 1
        return is_in(GangState.ENDED, *jobs)(seen)

    harness.wait_until(all_ended)


@conforms
def a_gang_holds_all_its_workers_or_none(harness: Harness) -> None:
    """9, 10: a gang of two that finds one worker taken holds nothing, and starts when both are free."""
    harness.backend.execute(gang(harness, "first", "a-0"))
    harness.wait_until(is_in(GangState.RUNNING, "first"))
    harness.backend.execute(gang(harness, "pair", "a-0", "a-1"))
    assert state_of(harness, "pair") is GangState.WAITING
    harness.backend.execute(gang(harness, "other", "a-1"))
    harness.wait_until(is_in(GangState.RUNNING, "other"))
    harness.backend.execute(stop("first", "other"))
    harness.wait_until(is_in(GangState.RUNNING, "pair"))


@conforms
def gangs_that_race_for_the_same_workers_all_finish(harness: Harness) -> None:
    """9: two gangs of two, their workers in opposite order: no deadlock."""
    one = gang(harness, "one", "a-0", "a-1", behaviour=Behaviour.FINISHES)
    two = gang(harness, "two", "a-1", "a-0", behaviour=Behaviour.FINISHES)
    harness.backend.execute([*one, *two])
    harness.wait_until(is_in(GangState.ENDED, "one", "two"))


@conforms
def a_worker_goes_from_one_gang_to_the_next(harness: Harness) -> None:
    """26: a hand-over needs only a stop and a launch."""
    harness.backend.execute(gang(harness, "old"))
    harness.wait_until(is_in(GangState.RUNNING, "old"))
    harness.backend.execute([*stop("old"), *gang(harness, "new")])
    harness.wait_until(is_in(GangState.RUNNING, "new"))
    assert exit_of(harness, "old").outcome is GangOutcome.PREEMPTED


# --- capacities -------------------------------------------------------------------------------------------------


@conforms
def capacity_zero_admits_nobody_and_keeps_holders(harness: Harness) -> None:
    """4, 6: the name leaves the view; its holders run on, and tasks that ask for it wait."""
    harness.backend.execute([resource(harness, "shared", 2), launch(harness, "holder", "a-0", needs="shared")])
    harness.wait_until(is_in(GangState.RUNNING, "holder"))
    harness.backend.execute(
        [resource(harness, "shared", 0, generation=2), launch(harness, "late", "a-1", needs="shared")]
    )
    seen = harness.backend.observe()
    assert not seen.resources
    assert is_in(GangState.RUNNING, "holder")(seen)
    assert is_in(GangState.WAITING, "late")(seen)


@conforms
def a_shrink_below_use_kills_nobody_and_starts_nobody(harness: Harness) -> None:
    """5: two gangs hold a capacity that shrinks to 1: the next starts only when both have ended."""
    starts = [launch(harness, job_id, worker, needs="shared") for job_id, worker in (("one", "a-0"), ("two", "a-1"))]
    harness.backend.execute([resource(harness, "shared", 2), *starts])
    harness.wait_until(is_in(GangState.RUNNING, "one", "two"))
    shrink = resource(harness, "shared", 1, generation=2)
    harness.backend.execute([shrink, launch(harness, "next", "b-0", needs="shared")])
    assert is_in(GangState.RUNNING, "one", "two")(harness.backend.observe())
    harness.backend.execute(stop("one"))
    assert is_in(GangState.WAITING, "next")(harness.wait_until(is_in(GangState.ENDED, "one")))
    harness.backend.execute(stop("two"))
    harness.wait_until(is_in(GangState.RUNNING, "next"))


@conforms
def a_batch_of_resources_is_set_whole_or_not_at_all(harness: Harness) -> None:
    """8, 11: one stale generation in a batch, and no part of it is done."""
    harness.backend.execute([resource(harness, "known", 2, generation=5)])
    stale, fresh = resource(harness, "known", 1, generation=4), resource(harness, "fresh")
    harness.backend.execute([SetResources(resources=(*fresh.resources, *stale.resources))])
    assert [(each.name, each.capacity) for each in harness.backend.observe().resources] == [("known", 2)]


@conforms
def a_name_that_nobody_renews_goes_at_the_end_of_its_lease(harness: Harness) -> None:
    """22: the process that set it may have died."""
    harness.backend.execute([resource(harness, "leaked", lasts_s=harness.short_s)])
    assert harness.backend.observe().resources
    harness.wait_until(lambda seen: not seen.resources)


# --- generations -----------------------------------------------------------------------------------------------------


@conforms
def an_older_token_is_refused(harness: Harness) -> None:
    """11: the fence stays when the newer gang has ended and is forgotten."""
    harness.backend.execute(gang(harness, "j1", generation=5, behaviour=Behaviour.FINISHES))
    exit_of(harness, "j1", generation=5)
    harness.backend.execute([*gang(harness, "j1", generation=4), *gang(harness, "j1", generation=5)])
    assert [each.generation for each in harness.backend.observe().gangs] == [5]
    harness.backend.execute([ForgetGang(job_id="j1", generation=5), *gang(harness, "j1", generation=4)])
    assert not harness.backend.observe().gangs


@conforms
def a_stop_refuses_the_launch_that_comes_after_it(harness: Harness) -> None:
    """12: a launch that was delayed past its own stop starts nothing."""
    harness.backend.execute([*stop("j1", generation=3), *gang(harness, "j1", generation=3)])
    assert not harness.backend.observe().gangs
    harness.backend.execute(gang(harness, "j1", generation=4))
    harness.wait_until(is_in(GangState.RUNNING, "j1", generation=4))


@conforms
def instructions_repeated_and_reordered_come_to_the_same(harness: Harness) -> None:
    """13: a launch, its resource and the stop of an older gang, in every order and twice."""
    for round_index, order in enumerate(permutations(range(3)), start=2):
        instructions = [
            *gang(harness, f"j{round_index}", generation=2, lasts_s=60),
            *stop(f"j{round_index}", generation=1),
        ]
        ordered = [instructions[index] for index in order]
        harness.backend.execute([*ordered, *ordered])
        seen = harness.wait_until(is_in(GangState.RUNNING, f"j{round_index}", generation=2))
        assert sum(each.job_id == f"j{round_index}" for each in seen.gangs) == 1
        harness.backend.execute(stop(f"j{round_index}", generation=2))
        exit_of(harness, f"j{round_index}", generation=2)


# --- leases -----------------------------------------------------------------------------------------------------


@conforms
def a_gang_ends_with_its_lease(harness: Harness) -> None:
    """15: unasked, and as preempted."""
    harness.backend.execute(gang(harness, "j1", lasts_s=harness.short_s))
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED


@conforms
def a_gang_ends_with_its_lease_though_the_service_is_dead(harness: Harness) -> None:
    """15: nobody calls the backend from before the end of the lease until after the grace."""
    instructions = gang(harness, "j1", lasts_s=harness.short_s)
    expires_at_s = harness.now_s() + harness.short_s
    harness.backend.execute(instructions)
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.crash()
    harness.wait_blindly(expires_at_s + harness.grace_s)
    assert harness.processes() == 0
    harness.recover()
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED


@conforms
def an_extended_lease_does_not_restart_the_gang(harness: Harness) -> None:
    """16: a lease is renewed in place; an extension never shortens it, and one that comes too late has no effect."""
    harness.backend.execute(gang(harness, "j1", lasts_s=harness.short_s))
    first_end_s = harness.now_s() + harness.short_s
    started = find(harness.wait_until(is_in(GangState.RUNNING, "j1")), "j1")
    later, earlier = (ExtendLease(job_id="j1", generation=1, expires_at_s=first_end_s + more_s) for more_s in (60, -60))
    harness.backend.execute([later, earlier])
    seen = find(harness.wait_until(lambda view: view.observed_at_s > first_end_s + harness.grace_s), "j1")
    assert seen is not None
    assert started is not None
    assert seen.state is GangState.RUNNING
    assert seen.started_at_s is not None
    assert started.started_at_s is not None
    assert abs(seen.started_at_s - started.started_at_s) < 0.05  # both clocks drift, nothing started anew
    harness.backend.execute(stop("j1"))
    exit_of(harness, "j1")
    harness.backend.execute([later])
    assert state_of(harness, "j1") is GangState.ENDED


@conforms
def a_gang_that_waits_does_not_outlive_its_lease(harness: Harness) -> None:
    """15: a gang that never started ends too, and starts no more when its resource comes late."""
    set_resource, start = gang(harness, "j1", lasts_s=harness.short_s)
    harness.backend.execute([start])
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED
    harness.backend.execute([set_resource])
    assert state_of(harness, "j1") is GangState.ENDED


# --- hints ------------------------------------------------------------------------------------------------------


@conforms
def a_prepared_gang_is_not_there_before_its_launch(harness: Harness) -> None:
    """9: it holds nothing, is launched like every other, and leaves nothing if it never is."""
    set_resource, start = gang(harness, "j1")
    _, never = gang(harness, "j2", "b-0")
    assert isinstance(start, LaunchGang)
    assert isinstance(never, LaunchGang)
    until_s = harness.now_s() + harness.short_s
    harness.backend.execute([PrepareGang(gang=each, until_s=until_s) for each in (start, never)])
    seen = harness.backend.observe()
    assert (seen.gangs, dict(seen.held)) == ((), {})
    harness.backend.execute([set_resource, start])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.wait_blindly(until_s)
    harness.backend.execute(stop("j1"))
    exit_of(harness, "j1")
    harness.wait_until(lambda _: harness.processes() == 0)


# --- restarts ---------------------------------------------------------------------------------------------------


@conforms
def a_new_service_adopts_what_runs_and_doubles_nothing(harness: Harness) -> None:
    """21: gangs survive the crash; the new service ignores instructions to launch them again."""
    instructions = [*gang(harness, "pair", "a-0", "a-1"), *gang(harness, "waits", "a-0")]
    harness.backend.execute(instructions)
    before = find(harness.wait_until(is_in(GangState.RUNNING, "pair")), "pair")
    processes = harness.processes()
    harness.crash()
    harness.recover()
    harness.backend.execute(instructions)
    seen = harness.backend.observe()
    assert is_in(GangState.RUNNING, "pair")(seen)
    assert is_in(GangState.WAITING, "waits")(seen)
    after = find(seen, "pair")
    assert before is not None
    assert after is not None
    assert (after.worker_ids, after.accelerator_type) == (before.worker_ids, before.accelerator_type)
    assert harness.processes() == processes
    harness.backend.execute(stop("pair"))
    harness.wait_until(is_in(GangState.RUNNING, "waits"))


@conforms
def fences_outlive_the_service(harness: Harness) -> None:
    """11, 21: what was refused before the crash is refused after it."""
    harness.backend.execute(stop("j1", generation=3))
    harness.crash()
    harness.recover()
    harness.backend.execute(gang(harness, "j1", generation=3))
    assert not harness.backend.observe().gangs


# --- endings ----------------------------------------------------------------------------------------------------


@conforms
def an_end_says_how_it_came(harness: Harness) -> None:
    """23: exit code and last log lines are in the exit; the log itself can be read."""
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.FAILS))
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 3)
    assert end.log_tail == "about to fail"
    text, next_offset = harness.backend.read_log("j1")
    assert text == b"about to fail\n"
    assert harness.backend.read_log("j1", next_offset) == (b"", next_offset)


@conforms
def a_job_that_finishes_says_so_before_it_ends(harness: Harness) -> None:
    """23: its last report comes no later than the observation that shows the end; once forgotten, it is gone."""
    steps: list[int] = []

    def has_ended(seen: Observation) -> bool:
        steps.extend(report.step for each in seen.gangs for report in each.reports)
        return is_in(GangState.ENDED, "j1")(seen)

    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.FINISHES))
    harness.wait_until(has_ended)
    assert steps[-1:] == [1]
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0)
    harness.backend.execute([ForgetGang(job_id="j1", generation=1)])
    assert not harness.backend.observe().gangs


@conforms
def a_program_that_is_missing_is_named(harness: Harness) -> None:
    """23: "not started" differs from "failed"."""
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.MISSING))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED
    assert harness.argv(Behaviour.MISSING)[0] in end.message


@conforms
def a_stubborn_gang_is_killed_with_all_it_started(harness: Harness) -> None:
    """24: after the grace, grandchildren included."""
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.STUBBORN))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.backend.execute(stop("j1"))
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED
    assert harness.processes() == 0


@conforms
def an_idle_backend_leaves_nothing_behind(harness: Harness) -> None:
    """28: no process, no name, no gang."""
    short: list[Instruction] = [resource(harness, "own", lasts_s=harness.short_s), launch(harness, "j1", needs="own")]
    harness.backend.execute(short)
    harness.backend.execute(gang(harness, "j2", "b-0", behaviour=Behaviour.FINISHES))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.backend.execute(stop("j1"))
    harness.wait_until(is_in(GangState.ENDED, "j1", "j2"))
    harness.backend.execute([ForgetGang(job_id=job_id, generation=1) for job_id in ("j1", "j2")])
    deleted = resource(harness, "gang-j2-1", 0, generation=2)
    harness.backend.execute([deleted])
    seen = harness.wait_until(lambda view: not view.resources)
    assert not seen.gangs
    assert harness.processes() == 0
