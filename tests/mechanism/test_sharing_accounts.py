"""Jobs that share their workers account for half of them each: time, hours, money, caps."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.mechanism.jobs.lifecycle import account_time
from gavel.mechanism.observing.charging import charges
from gavel.mechanism.planning.caps import capped
from gavel.policies.hierarchical import Hierarchical
from gavel.types import Allocation, Certificate, GangSeen, GangState, JobState, Tier, worker_s_of, workers_promised
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.test_admission_holds import ESTIMATOR


def a_gang(job_id: str, **over: object) -> GangSeen:
    fields = {"job_id": job_id, "generation": 1, "state": GangState.RUNNING, "accelerator_type": "fast"}
    return GangSeen(**(fields | {"worker_ids": ("fast-0",), "started_at_s": 10.0} | over))


def test_the_time_beside_a_partner_is_kept_apart() -> None:
    """The job runs from 10 s on; one partner was there until 14 s, the next comes at 18 s."""
    job = a_job("a", state=JobState.LEASED, generation=1)
    before = a_gang("b", ended_at_s=14.0, state=GangState.ENDED)
    after = a_gang("c", started_at_s=18.0)
    waits = a_gang("d", started_at_s=None, state=GangState.WAITING)
    seen = account_time(job, a_gang("a"), 20.0, (before, after, waits))
    assert (seen.received_s, seen.shared_s) == ({"fast": 10.0}, {"fast": 6.0})
    assert worker_s_of(seen) == {"fast": 7.0}
    assert account_time(seen, a_gang("a"), 21.0, (after,)).shared_s == {"fast": 7.0}


def test_two_jobs_on_one_worker_are_charged_one_worker_together() -> None:
    jobs = [a_job(job_id) for job_id in ("a", "b")]
    held = [replace(job, received_s={"fast": 3600.0}, shared_s={"fast": 3600.0}) for job in jobs]
    before = {job.id: job for job in jobs}
    (part,) = charges(before, held, cluster=a_cluster(fast=1), estimator=ESTIMATOR, now_s=0.0)
    assert (part.accelerator_hours, part.cost_usd) == (1.0, 1.0)


def a_pair(fractions: list[float], **over: object) -> tuple[Allocation, object]:
    tiers = (Tier(name="capped", cap=0.25), Tier(name="free"))
    problem = a_problem([[1.0], [1.0]], [1], tiers=tiers, tier_of_job=[0, 1], **over)
    allocation = Allocation(
        combinations=(("j0",), ("j1",), ("j0", "j1")), accelerator_types=("t0",),
        time_fraction=np.array(fractions, dtype=float).reshape(3, 1),
        certificate=Certificate(primal_violation=0.0), policy="p", solver="s",
    )  # fmt: skip
    return allocation, problem


def test_a_cap_counts_the_tier_s_half_of_a_pair_that_only_the_allocation_names() -> None:
    allocation, problem = a_pair([0.0, 0.5, 0.5])
    assert capped(allocation, problem).time_fraction is allocation.time_fraction, "half of half a worker is within"
    over, _ = a_pair([0.0, 0.0, 1.0])
    cut = capped(over, problem)
    assert cut.time_fraction[2, 0] == pytest.approx(0.5)
    assert workers_promised(cut, problem)[0, 0] == pytest.approx(0.25)


def test_the_hierarchical_program_counts_a_pair_as_the_caps_do() -> None:
    """Beside each other both jobs keep their speed: the capped one may have half of the worker's time, packed."""
    _, problem = a_pair([0.0, 0.0, 0.0])
    rates = np.ones((3, 2, 1))
    rates[:2, 1] = 0.0
    packed = replace(problem, combinations=((0,), (1,), (0, 1)), throughput_steps_per_s=rates)
    answer = Hierarchical().program(packed)
    assert workers_promised(answer, packed)[0, 0] == pytest.approx(0.25, abs=1e-4)
    assert capped(answer, packed).time_fraction is answer.time_fraction
