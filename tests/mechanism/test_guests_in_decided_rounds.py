"""Rounds that are decided where a session has a guest, or an elastic job is far behind."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.simulator.oracle import OracleThroughputs
from gavel.types import Job, RoundRecord
from tests.builders import a_job
from tests.mechanism.test_decided_rounds import RATES, a_decider, decided, lease, running
from tests.mechanism.test_sessions_that_join import a_machine
from tests.mechanism.test_sizes import elastic

ALONE = {("notebook", 1, "fast"): 1.0, ("mlp", 1, "fast"): 10.0, ("cnn", 1, "fast"): 10.0}
TOGETHER = {
    (*pair, 1, "fast"): 0.8 * ALONE[pair[0], 1, "fast"]
    for pair in (("mlp", "notebook"), ("notebook", "mlp"), ("cnn", "notebook"), ("notebook", "cnn"))
}
ESTIMATOR = OracleThroughputs(ALONE, TOGETHER)


def a_session() -> Job:
    spec = {
        "preemptible": False,
        "longest_s": 900.0,
        "accelerator_share": 0.5,
        "accelerator_memory_bytes": 8,
        "kind": "notebook",
    }
    return running("s", spec=spec, started_at_s=90.0)


def training(job_id: str, **over: Any) -> Job:
    return a_job(job_id, spec={"user": "bob", "accelerator_memory_bytes": 4} | over.pop("spec", {}), **over)


def the_round_after(
    *others: Job, leases: Any = (), settings: dict[str, Any] | None = None, workers: int = 1, **over: Any
) -> RoundRecord:
    """The session had the first worker in the round before."""
    first = decided(a_job("a"))
    record = replace(first, plan=replace(first.plan, leases=(lease("s", "n0-0", accelerator_type="fast"), *leases)))
    return decided(
        a_session(),
        *others,
        decider=a_decider(**(settings or {})),
        records=(replace(record, **over),),
        cluster=a_machine(workers),
        estimator=ESTIMATOR,
        now_s=108.0,
        starts_at_s=111.0,
    )


def guest_of(record: RoundRecord) -> list[tuple[str, int, tuple[str, ...]]]:
    """Job, generation and pair of each guest; the session is in the pair, too."""
    assert record.inputs is not None
    guests = record.inputs.guests
    pairs = {each.job_id: each.combination for each in record.plan.leases}
    assert all(pairs["s"] == pairs[guest.job_id] == guest.combination for guest in guests)
    return [(guest.job_id, guest.generation, guest.combination) for guest in guests]


def test_a_training_that_a_round_gives_nothing_is_a_guest_of_its_session() -> None:
    record = the_round_after(training("a", generation=3), training("b"))
    assert guest_of(record) == [("a", 4, ("s", "a"))]
    assert [each.worker_ids for each in record.plan.leases] == [("n0-0",), ("n0-0",)]


def test_there_are_no_guests_where_an_operator_lets_nobody_share() -> None:
    assert guest_of(the_round_after(training("a"), settings={"space_sharing": False})) == []


def test_one_that_lags_goes_first_and_one_that_is_there_stays() -> None:
    """Job c, which lags most, gets the other worker."""
    lags = {("a", "fast"): -1.0, ("b", "fast"): 0.5, ("c", "fast"): 2.0}
    lagging = the_round_after(training("a"), training("b"), training("c"), lag_rounds=lags, workers=2)
    assert guest_of(lagging)[0][0] == "b" and [each.job_id for each in lagging.plan.leases] == ["s", "c", "b"]
    there = lease("b", "n0-0", accelerator_type="fast", generation=2, combination=("s", "b"))
    assert guest_of(the_round_after(training("a"), training("b", generation=1), leases=(there,)))[0] == (
        "b",
        2,
        ("s", "b"),
    )


@pytest.mark.parametrize(("cost_s", "expected"), [(5.0, "a"), (5.1, "b")])
def test_a_start_has_to_pay_for_a_guest(cost_s: float, expected: str) -> None:
    """Of two kinds the first one takes long to start."""
    jobs = [training("a"), training("b", spec={"kind": "cnn"})]
    record = the_round_after(*jobs, switch_cost_s={"mlp": cost_s, "cnn": 0.0})
    assert guest_of(record)[0][0] == expected


def test_an_elastic_job_far_behind_has_its_place_first_and_its_configurations_are_in_the_problem() -> None:
    jobs = [elastic("e", 1_000, (1, 2)), a_job("a", spec={"total_steps": 10**6}, submitted_at_s=690.0)]
    record = decided(*jobs, now_s=700.0, starts_at_s=701.0, estimator=OracleThroughputs(RATES))
    assert record.problem.configurations is not None
    assert record.problem.configurations.steps_per_s.tolist() == [[[10.0, 15.0]]]
    assert record.inputs is not None and record.inputs.late == (("e", "fast"),)
