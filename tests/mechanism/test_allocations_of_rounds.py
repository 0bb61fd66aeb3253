"""Whose answer a round has: the policy's, the last one, or an equal share; and what is given between rounds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from gavel.config import Settings
from gavel.errors import InvalidRequest, InvariantViolated, SolveFailed
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.decision import MOST_ERROR_CHARACTERS, Decider
from gavel.policies.equal_share import EqualShare
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import Allocation, AllocationProblem, ExecutionPlan, Fallback, Job, JobState, PairRates, Tier
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.test_backfill import a_gang
from tests.mechanism.test_decided_rounds import (
    ESTIMATOR,
    A,
    B,
    Runner,
    a_decider,
    a_tick,
    decided,
    lease,
)

PROBLEM = a_problem([[1.0], [1.0]], [1])
PAIRS = PairRates(kind_of_job=np.zeros(2, dtype=np.int64), steps_per_s=np.ones((1, 1, 1)))


class Garbage(Runner):
    """Answers with more time than there is."""

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        answer = super().allocate(policy, problem, time_limit_s)
        return replace(answer, time_fraction=answer.time_fraction + 2.0)


# --- the policy's answer ------------------------------------------------------------------------------------------


def test_the_policy_is_asked_again_only_where_what_it_reads_has_changed_or_it_is_to_be() -> None:
    runner = Runner()
    decider = a_decider(runner)
    first, outcome = decider.allocation_of(PROBLEM, None)
    assert (outcome, len(runner.asked), first.is_fallback) == ("solved", 1, False)
    assert decider.allocation_of(replace(PROBLEM, weight=PROBLEM.weight.copy()), first)[1] == "reused"
    assert decider.allocation_of(replace(PROBLEM, weight=PROBLEM.weight * [1, 2]), first)[1] == "solved"
    decider.forget()
    assert decider.allocation_of(replace(PROBLEM, weight=PROBLEM.weight * [1, 2]), first)[1] == "solved"
    assert [limit_s for _, _, limit_s in runner.asked] == [2.0] * 3


def test_with_a_time_between_solves_the_last_answer_serves_whatever_changes() -> None:
    runner = Runner()
    decider = a_decider(runner, allocation_interval_s=30.0)
    decider.allocation_of(PROBLEM, None)
    heavier = replace(PROBLEM, weight=PROBLEM.weight * [1, 2])
    assert decider.allocation_of(replace(heavier, now_s=29.0), None)[1] == "reused"
    assert decider.allocation_of(replace(heavier, now_s=30.0), None)[1] == "solved"


@pytest.mark.parametrize(
    ("settings", "now_s", "expected"),
    [
        ({"solve_on": "event"}, 50.0, True),
        ({"solve_on": "change", "policy": "shortest_job_first"}, 50.0, False),
        ({"solve_on": "change", "policy": "shortest_job_first", "allocation_interval_s": 60.0}, 50.0, True),
    ],
)
def test_an_answer_serves_after_progress_by_the_settings(
    settings: dict[str, Any], now_s: float, expected: bool
) -> None:
    decider = a_decider(**settings)
    assert not decider.serves_after_progress(now_s)
    decider.allocation_of(PROBLEM, None)
    assert decider.serves_after_progress(now_s) is expected


@pytest.mark.parametrize(("limit_s", "round_s", "expected"), [(5.0, 10.0, 2.0), (5.0, 100.0, 5.0), (1.0, 10.0, 1.0)])
def test_a_solve_takes_a_fifth_of_a_round_at_most(limit_s: float, round_s: float, expected: float) -> None:
    runner = Runner()
    decider = a_decider(runner, solve_time_limit_s=limit_s, round_duration_s=round_s)
    decider.allocation_of(replace(PROBLEM, round_duration_s=round_s), None)
    decider.fractions_now(replace(PROBLEM, round_duration_s=round_s))
    assert [asked[2] for asked in runner.asked] == [expected] * 2


def test_a_tier_with_a_cap_gets_no_more_whatever_the_policy_says() -> None:
    capped = replace(PROBLEM, tiers=(Tier(name="gold", cap=0.5),))
    allocation, _ = a_decider().allocation_of(capped, None)
    assert allocation.time_fraction.sum() == pytest.approx(0.5)


# --- without an answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runner", "error"),
    [
        (Runner(is_warm=False), "the policy runner is starting"),
        (Runner(error=SolveFailed("it crashed")), "it crashed"),
        (Runner(error=InvalidRequest("policy", "is unknown")), str(InvalidRequest("policy", "is unknown"))),
        (Runner(error=InvariantViolated("x", "y")), str(InvariantViolated("x", "y"))),
        (Runner(error=SolveFailed("x" * 5000)), "x" * MOST_ERROR_CHARACTERS),
    ],
    ids=["it is starting", "it failed", "it refuses", "it is broken", "it says much"],
)
def test_while_the_policy_fails_jobs_have_an_equal_share_and_are_told_why(runner: Runner, error: str) -> None:
    allocation, outcome = a_decider(runner).allocation_of(replace(PROBLEM, now_s=50.0, pair_rates=PAIRS), None)
    assert allocation.time_fraction.tolist() == [[0.5], [0.5]] and allocation.is_fallback
    assert allocation.fallback == Fallback(policy="max_min_fairness", error=error, since_s=50.0, instead="equal share")
    assert outcome == f"equal share: {error}"


def test_an_operator_reads_in_the_log_that_a_policy_fails() -> None:
    """Whether a round is planned, or jobs that wait are looked at in between."""
    decider = a_decider(Runner(error=SolveFailed("x" * 5000)))
    with capture_logs() as entries:
        decider.allocation_of(PROBLEM, None)
        decider.fractions_now(PROBLEM)
    error = "x" * MOST_ERROR_CHARACTERS
    entry = {"event": "solve.failed", "policy": "max_min_fairness", "error": error, "log_level": "warning"}
    assert entries == [entry, entry]


def test_an_answer_that_gives_more_than_there_is_is_none() -> None:
    decider = a_decider(Garbage())
    allocation, outcome = decider.allocation_of(PROBLEM, None)
    assert (
        outcome.startswith("equal share: allocation_is_fractions") and allocation.time_fraction.tolist() == [[0.5]] * 2
    )
    assert decider.allocation_of(PROBLEM, None)[1] != "reused"


def an_answer(problem: AllocationProblem) -> Allocation:
    return a_decider().allocation_of(problem, None)[0]


def test_the_last_answer_is_kept_for_those_that_were_in_it_and_who_is_new_has_an_equal_share_beside_it() -> None:
    last = an_answer(a_problem([[1.0], [1.0]], [1], job_ids=("j0", "gone"), weight=[3.0, 1.0]))
    assert last.time_fraction.tolist() == [pytest.approx([0.75]), pytest.approx([0.25])]
    problem = a_problem([[1.0], [1.0]], [1], job_ids=("j0", "new"), users=("ann", "bob"), now_s=9.0)
    allocation, outcome = a_decider(Runner(error=SolveFailed("no"))).allocation_of(problem, last)
    assert allocation.time_fraction.tolist() == [pytest.approx([0.375]), pytest.approx([0.5])]
    expected = Fallback(policy="max_min_fairness", error="no", since_s=9.0, instead="last allocation kept")
    assert (allocation.fallback, outcome, allocation.is_fallback) == (expected, "last allocation kept: no", True)


def test_on_other_types_the_last_answer_says_nothing() -> None:
    last = an_answer(a_problem([[1.0], [1.0]], [1], accelerator_types=("other",)))
    assert a_decider(Runner(error=SolveFailed("no"))).allocation_of(PROBLEM, last)[1] == "equal share: no"
    swapped = a_problem([[1.0, 2.0]], [1, 1], accelerator_types=("t1", "t0"))
    both = an_answer(a_problem([[2.0, 1.0]], [1, 1]))
    assert a_decider(Runner(error=SolveFailed("no"))).allocation_of(swapped, both)[1] == "last allocation kept: no"


@pytest.mark.parametrize(("policy", "since_s"), [("max_min_fairness", 3.0), ("fifo", 9.0)])
def test_a_failure_lasts_since_the_same_policy_failed_first(policy: str, since_s: float) -> None:
    fallback = Fallback(policy=policy, error="before", since_s=3.0, instead="equal share")
    last = replace(an_answer(PROBLEM), fallback=fallback)
    allocation, _ = a_decider(Runner(error=SolveFailed("no"))).allocation_of(replace(PROBLEM, now_s=9.0), last)
    assert allocation.fallback is not None and allocation.fallback.since_s == since_s


def test_a_round_keeps_the_last_answer_while_the_policy_fails() -> None:
    first = decided(A, B)
    failing = a_decider(Runner(error=SolveFailed("no")))
    second = decided(A, B, decider=failing, records=(first,), now_s=108.0, starts_at_s=111.0)
    assert second.solver_outcome == "last allocation kept: no" and second.allocation.is_fallback
    assert second.allocation.time_fraction.tolist() == first.allocation.time_fraction.tolist()


# --- which composition --------------------------------------------------------------------------------------------


def test_the_composition_that_is_chosen_holds_for_the_round_and_the_last_answer_is_forgotten() -> None:
    runner = Runner()
    decider = a_decider(runner)
    decider.allocation_of(PROBLEM, None)
    decider.follow(a_tick(A))
    assert decider.allocation_of(PROBLEM, None)[1] == "reused"
    decider.follow(a_tick(A, snapshot={"policy": "fifo/round_duration_s=20"}))
    assert (decider.settings.policy, decider.settings.round_duration_s) == ("fifo", 20.0)
    assert decider.allocation_of(PROBLEM, None)[1] == "solved" and runner.asked[-1][0] == "fifo"
    decider.follow(a_tick(A, snapshot={"policy": "fifo/round_duration_s=20"}))
    assert decider.allocation_of(PROBLEM, None)[1] == "reused"
    decider.follow(a_tick(A, policy="", snapshot={"policy": "fifo"}))
    assert (decider.settings.policy, decider.settings.round_duration_s) == ("max_min_fairness", 10.0)
    record = decided(A, decider=decider, policy="fifo")
    assert record.inputs is not None and record.inputs.policy == "fifo"


# --- between rounds -----------------------------------------------------------------------------------------------


def test_jobs_that_wait_have_the_fractions_that_the_policy_gives_them_of_what_is_free() -> None:
    class OfOwnKinds(OracleThroughputs):
        def kind_of(self, job: Job) -> str:
            return "own" if job.id == "a" else job.spec.kind

    runner = Runner()
    estimator = OfOwnKinds({("own", 1, "slow"): 2.0, ("mlp", 1, "fast"): 10.0})
    first = decided(A)
    first = replace(first, allocation=replace(first.allocation, warm_start={"x": 1}))
    tick = a_tick(A, B, records=(first,), now_s=105.0)
    targets = a_decider(runner).targets(tick, [A, B], Layout(a_cluster(fast=1, slow=1)), estimator)
    assert targets == {("a", "slow"): pytest.approx(1.0), ("b", "fast"): pytest.approx(1.0)}
    ((_, problem, _),) = runner.asked
    assert (problem.now_s, problem.warm_start, problem.job_ids) == (105.0, {"x": 1}, ("a", "b"))
    assert problem.throughput_steps_per_s[:, 0].tolist() == [[0.0, 2.0], [10.0, 0.0]]
    assert a_decider().targets(a_tick(A), [A], Layout(a_cluster(fast=1)), ESTIMATOR) == {("a", "fast"): 1.0}


@pytest.mark.parametrize(
    ("make", "settings", "asked"),
    [
        (lambda: Runner(is_warm=False), {}, 0),
        (Runner, {"allocation_interval_s": 1.0}, 0),
        (lambda: Runner(error=SolveFailed("no")), {}, 1),
        (lambda: Runner(error=InvalidRequest("policy", "no")), {}, 1),
        (Garbage, {}, 1),
    ],
    ids=["it is starting", "some time between solves", "it fails", "it refuses", "more than there is"],
)
def test_without_an_answer_jobs_that_wait_have_no_fractions(
    make: Callable[[], Runner], settings: dict[str, Any], asked: int
) -> None:
    runner = make()
    fractions = a_decider(runner, **settings).fractions_now(PROBLEM)
    assert fractions.tolist() == [[0.0], [0.0]] and len(runner.asked) == asked


def test_jobs_that_wait_are_alone_on_their_workers() -> None:
    runner = Runner()
    fractions = a_decider(runner).fractions_now(replace(PROBLEM, pair_rates=PAIRS))
    assert fractions.tolist() == [[0.5], [0.5]] and runner.asked[0][1].pair_rates is None


# --- sizes, plans and what is measured ----------------------------------------------------------------------------


def with_plans(job_id: str, **over: Any) -> Job:
    own = tuple(ExecutionPlan(name=name, kind=f"net[{name}]", sizes=(1,)) for name in "ab")
    return a_job(job_id, spec={"plans": own, "plan": "a", "kind": "net[a]", "total_steps": 10**6}, **over)


def test_a_job_has_its_best_plan_and_its_gang_runs_under_it() -> None:
    job = with_plans("p")
    record = decided(job, A)
    assert record.inputs is not None and record.inputs.plan_on == {"p": {"fast": "b"}}
    assert {each.job_id: each.plan for each in record.plan.leases} == {"p": "b", "a": ""}
    assert record.problem.throughput_steps_per_s[:, 0].tolist() == [[9.0], [10.0]]


TRAINS = with_plans("p", state=JobState.LEASED, generation=1, training_since_s=95.0, checkpoint="1-9")


@pytest.mark.parametrize(
    ("job", "planned", "over", "expected"),
    [
        (TRAINS, lease("p", "fast-1", plan="a"), {}, "b"),
        (
            TRAINS,
            lease("p", "fast-1", plan="a"),
            {"minimum_run_s": 60.0},
            "a",
        ),
        (
            TRAINS,
            lease("p", "fast-1", plan="a"),
            {"minimum_run_s": 20.0},
            "b",
        ),
    ],
    ids=["it pays", "it has to run its minimum", "it has run its minimum"],
)
def test_a_gang_keeps_its_plan_while_it_has_to_stay(
    job: Job, planned: Any, over: dict[str, Any], expected: str
) -> None:
    first = decided(A)
    record = replace(first, plan=replace(first.plan, leases=(planned,)))
    gang = replace(a_gang("p", 1, ["fast-1"]), started_at_s=91.0)
    second = decided(job, decider=a_decider(**over), records=(record,), gangs=(gang,), now_s=108.0, starts_at_s=111.0)
    assert [each.plan for each in second.plan.leases] == [expected]


def test_what_nobody_measured_is_profiled_but_for_jobs_that_may_not_be_preempted_and_by_plans_that_are_due() -> None:
    session, training = a_job("s", spec={"preemptible": False}), a_job("a")

    def choose(jobs: Any, problem: Any, estimator: Any) -> Any:
        return tuple((job.id, "fast") for job in jobs)

    settings = Settings(policy="max_min_fairness", round_duration_s=10.0)
    decider = Decider(runner=Runner(), fallback=EqualShare(), settings=settings, choose_profiling=choose)
    record = decided(session, training, with_plans("p"), decider=decider)
    assert record.inputs is not None and record.inputs.to_profile == (("a", "fast"),)
