"""Which jobs no round may serve now, and why: by months of tiers, users, other jobs, moves, times and disk."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.jobs import admission_holds, disk_holds
from gavel.mechanism.jobs.admission_holds import held, held_of, is_held, month_too_short, release, spent_tiers, used
from gavel.mechanism.jobs.index import JobIndex
from gavel.ports import JobEvent, SaveCheckpoint
from gavel.types import (
    Check,
    DiskState,
    GangSeen,
    GangState,
    Job,
    JobState,
    Reason,
    ServiceSpec,
    Serving,
    Tier,
    Usage,
)
from gavel.types.regions import Residence
from tests.builders import a_job

NOW_S = 100.0
SERVICE = ServiceSpec(
    replicas=2, replicas_min=0, replicas_max=2, min_available=0, serving=Serving(port=0, readiness=Check())
)
SESSION = {"preemptible": False, "longest_s": 60.0, "reserved_at_s": 200.0, "reserved_type": "fast"}
MOVING = Residence(region="west", arrives_at_s=101.0, why="its data is there")


def tiers_of(*tiers: Tier) -> dict[str, Tier]:
    return {tier.name: tier for tier in tiers}


def used_by(**hours: float) -> dict[tuple[str, str], Usage]:
    """Accelerator hours of each tier in the first month."""
    return {
        (name, "1970-01"): Usage(tier=name, month="1970-01", accelerator_hours=each) for name, each in hours.items()
    }


GOLD = tiers_of(Tier(name="gold", accelerator_hours_per_month=10.0))
SPENT = {"gold": "Tier gold has used 10.50 of 10 accelerator hours in 1970-01."}


def why_held(job: Job, spent: Mapping[str, float] | None = None) -> tuple[Reason, str] | None:
    """By the function for any jobs; those for an index and for a single job have to say the same."""
    usage = used_by(**(spent or {}))
    by_id = held([a_job("plain", spec={"tier": "other"}), job], tiers=GOLD, usage=usage, now_s=NOW_S)
    index = JobIndex({job.id: job})
    assert held_of(index, tiers=GOLD, usage=usage, now_s=NOW_S) == by_id
    assert is_held(job, spent_tiers(GOLD, usage, NOW_S), NOW_S) is bool(by_id)
    assert by_id.keys() <= {job.id}
    return by_id.get(job.id)


@pytest.mark.parametrize(
    ("over", "reason", "message"),
    [
        ({"pause_requested": True, "steps_done": 7}, Reason.PAUSED, "The job is paused at step 7 of 100."),
        ({"pause_requested": True, "spec": {"service": SERVICE}}, Reason.PAUSED, "The service is paused."),
        ({"spec": {"service": SERVICE}}, Reason.SERVING, "0 of 2 replicas are ready."),
        (
            {"waits_for": ("a", "b", "c"), "spec": {"after": ("z", "a", "b", "c")}},
            Reason.WAITING_FOR_JOBS,
            "Of the jobs that come first, 3 of 4 have not completed: a, b, c.",
        ),
        (
            {"waits_for": ("a", "b", "c", "d"), "spec": {"after": ("a", "b", "c", "d")}},
            Reason.WAITING_FOR_JOBS,
            "Of the jobs that come first, 4 of 4 have not completed: a, b, c, ...",
        ),
        ({"residence": MOVING}, Reason.MOVING, "its data is there"),
        (
            {"spec": SESSION},
            Reason.RESERVED,
            "1 of fast reserved for the session: it starts at 1970-01-01 00:03:20 UTC, and ends at 1970-01-01 00:04:20"
            " UTC.",
        ),
    ],
    ids=["a pause", "of a service", "a service", "other jobs", "many other jobs", "a move", "a reservation"],
)
def test_a_job_is_held_with_the_reason(over: dict[str, Any], reason: Reason, message: str) -> None:
    assert why_held(a_job(**over)) == (reason, message)


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        a_job(residence=replace(MOVING, arrives_at_s=NOW_S)),
        a_job(spec=SESSION | {"reserved_at_s": NOW_S}),
        a_job(spec=SESSION | {"reserved_at_s": None}),
    ],
    ids=["nothing", "it arrives now", "its reservation begins now", "nothing is reserved"],
)
def test_a_job_that_nothing_is_in_the_way_of_is_not_held(job: Job) -> None:
    assert why_held(job) is None


def test_a_spent_month_holds_jobs_of_the_tier_but_for_sessions_that_run() -> None:
    """These have an end of their own."""
    limit = (Reason.QUOTA_EXCEEDED, SPENT["gold"])
    session = {"preemptible": False, "longest_s": 60.0}
    assert why_held(a_job(), {"gold": 10.5}) == limit
    assert why_held(a_job(state=JobState.LEASED), {"gold": 10.5}) == limit
    assert why_held(a_job(spec=session), {"gold": 10.5}) == limit
    assert why_held(a_job(spec=session, state=JobState.LEASED), {"gold": 10.5}) is None
    assert why_held(a_job(spec={"tier": "other"}), {"gold": 10.5}) is None


def test_while_no_tier_is_out_only_jobs_with_a_condition_are_looked_at() -> None:
    """A job has none as long as it has nothing more to say than that it waits or runs."""
    index = JobIndex({each.id: each for each in (a_job("plain"), a_job("paused", pause_requested=True))})
    paused = {"paused": (Reason.PAUSED, "The job is paused at step 0 of 100.")}
    assert held_of(index, tiers=GOLD, usage=used_by(gold=9.0), now_s=NOW_S) == paused
    index.conditional.clear()
    assert held_of(index, tiers=GOLD, usage=used_by(gold=9.0), now_s=NOW_S) == {}
    both = held_of(index, tiers=GOLD, usage=used_by(gold=10.5), now_s=NOW_S)
    assert both == paused | {"plain": (Reason.QUOTA_EXCEEDED, SPENT["gold"])}


TREE = tiers_of(
    Tier(name="department", accelerator_hours_per_month=10.0, budget_usd_per_month=4.0),
    Tier(name="team", parent="department", accelerator_hours_per_month=6.0),
    Tier(name="other"),
)


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        (used_by(department=9.99, other=50.0), {}),
        (used_by(team=6.0), {"team": "Tier team has used 6.00 of 6 accelerator hours in 1970-01."}),
        (
            used_by(team=5.0, department=5.0),
            dict.fromkeys(("department", "team"), "Tier department has used 10.00 of 10 accelerator hours in 1970-01."),
        ),
        (
            used_by(team=6.5, department=4.0),
            {
                "department": "Tier department has used 10.50 of 10 accelerator hours in 1970-01.",
                "team": "Tier team has used 6.50 of 6 accelerator hours in 1970-01.",
            },
        ),
        (
            {("department", "1970-01"): Usage(tier="department", month="1970-01", cost_usd=4.125)},
            dict.fromkeys(("department", "team"), "Tier department has used 4.12 of 4 USD in 1970-01."),
        ),
        ({("team", "1970-02"): Usage(tier="team", month="1970-02", accelerator_hours=99.0)}, {}),
    ],
    ids=["below", "its own", "of the one above", "the own one is named first", "money", "another month"],
)
def test_a_tier_is_out_at_a_limit_of_its_own_or_of_one_above_it(
    usage: dict[tuple[str, str], Usage], spent: dict[str, str]
) -> None:
    assert spent_tiers(TREE, usage, NOW_S) == spent


def test_what_a_tier_used_is_the_sum_of_it_and_of_those_below_in_the_month() -> None:
    usage = used_by(department=1.0, team=2.0, other=4.0)
    usage["team", "1970-02"] = Usage(tier="team", month="1970-02", accelerator_hours=8.0)
    assert used("department", TREE, usage, "1970-01") == Usage(
        tier="department", month="1970-01", accelerator_hours=3.0
    )
    assert used("team", TREE, usage, "1970-02") == Usage(tier="team", month="1970-02", accelerator_hours=8.0)
    assert used("team", TREE, {}, "1970-03") == Usage(tier="team", month="1970-03")


def test_a_month_is_too_short_for_more_steps_than_its_hours_can_do() -> None:
    tier = Tier(name="gold", accelerator_hours_per_month=2.0)
    assert month_too_short(tier, 7200, 2, 2.0) is None
    assert month_too_short(Tier(name="gold"), 10**9, 2, 2.0) is None
    assert month_too_short(tier, 9000, 2, 2.0) == (
        "9000 steps need 2.50 accelerator hours on the fastest type; tier gold has 2 a month."
    )


def test_a_job_whose_predecessors_have_completed_waits_for_the_others_only() -> None:
    job = a_job(waits_for=("a", "b"), reason=Reason.WAITING_FOR_JOBS, message="They have not completed.")
    states = {"a": JobState.COMPLETED, "b": JobState.QUEUED}
    evaluated = replace(job, reason=Reason.PENDING_EVALUATION, message="")
    assert release(job, states, NOW_S) == (replace(evaluated, waits_for=("b",)), None)
    assert release(job, states | {"b": JobState.COMPLETED}, NOW_S) == (replace(evaluated, waits_for=()), None)


def test_a_job_whose_predecessors_still_run_or_that_has_none_stays_the_same_object() -> None:
    for job in (a_job(waits_for=("a",)), a_job()):
        left, event = release(job, {"a": JobState.LEASED}, NOW_S)
        assert left is job and event is None


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_job_ends_with_the_first_predecessor_that_did_not_complete(state: JobState) -> None:
    states = {"a": JobState.COMPLETED, "b": state, "c": JobState.FAILED}
    message = f"This job was to run after job b, which is {state}."
    job, event = release(a_job(waits_for=("a", "b", "c")), states, NOW_S)
    assert (job.state, job.reason, job.message) == (JobState.FAILED, Reason.DEPENDENCY_FAILED, message)
    assert job.finished_at_s == NOW_S
    assert event == JobEvent(job_id="j1", at_s=NOW_S, kind="job.refused", message=message)


# --- disk -------------------------------------------------------------------------------------------------------

ANN, BOB = a_job("ann"), a_job("bob", spec={"user": "bob"})
RUNS = a_job("runs", state=JobState.LEASED)
LOW = DiskState(low="2 MB are free.", low_since_s=7.0, over_budget={"bob": "Bob has 9 MB."})


def test_jobs_that_wait_are_held_for_lack_of_disk_before_a_budget_counts() -> None:
    jobs = (RUNS, BOB, ANN)
    low = (Reason.LOW_DISK, "2 MB are free.")
    assert disk_holds.held(jobs, LOW) == {"bob": low, "ann": low}
    assert disk_holds.held(jobs, replace(LOW, over_budget={})) == {"bob": low, "ann": low}
    over = replace(LOW, low="")
    assert disk_holds.held(jobs, over) == {"bob": (Reason.DISK_BUDGET_EXCEEDED, "Bob has 9 MB.")}
    assert disk_holds.held(jobs, DiskState()) == {}


def test_gangs_that_run_are_asked_for_a_checkpoint_as_of_the_time_when_the_disk_became_low() -> None:
    def a_gang(job_id: str, state: GangState) -> GangSeen:
        return GangSeen(job_id=job_id, generation=3, state=state, accelerator_type="fast", worker_ids=("fast-0",))

    gangs = [a_gang("a", GangState.WAITING), a_gang("b", GangState.RUNNING), a_gang("c", GangState.ENDED)]
    assert list(disk_holds.saves(gangs, LOW)) == [SaveCheckpoint(job_id="b", generation=3, asked_at_s=7.0)]
    assert list(disk_holds.saves(gangs, replace(LOW, low=""))) == []


def test_no_more_jobs_are_named_than_a_sentence_can_hold() -> None:
    names = tuple(f"j{index}" for index in range(admission_holds.NAMED_MAX + 9))
    assert why_held(a_job(waits_for=names, spec={"after": names})) == (
        Reason.WAITING_FOR_JOBS,
        "Of the jobs that come first, 12 of 12 have not completed: j0, j1, j2, ...",
    )
