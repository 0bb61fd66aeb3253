"""One answer to when a job ends: jobs of the newest round, newcomers, jobs that no plan moves, jobs that are held."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.views.deadlines import deadline_view
from gavel.mechanism.explaining.expected_end import JobEnd, Knowledge, job_end, job_start, state_of_now
from gavel.mechanism.explaining.explanation import State
from gavel.mechanism.explaining.forecast import forecast
from gavel.ports import ThroughputEstimator
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import Job, JobState, Lease, NodeState, NodeStatus, Tier
from tests.builders import a_cluster, a_job
from tests.mechanism.test_forecast import a_record
from tests.mechanism.world import RATES, World

NOW_S = 100.0
TIERS = {"gold": Tier(name="gold")}
KNOWN = OracleThroughputs({("mlp", 1, "t0"): 1.0, ("mlp", 2, "t0"): 2.0})


def knowledge(state: State, estimator: ThroughputEstimator = KNOWN) -> Knowledge:
    def of_now() -> Any:
        now = state_of_now(state, estimator, policy="max_min_fairness?water_filling=true", round_duration_s=10.0)
        return now, now.forecast()

    return Knowledge(
        state=state,
        estimator=estimator,
        errors=None,
        of_round=lambda record: forecast(record.problem, record.allocation),
        of_now=of_now,
    )


def a_state(*jobs: Job, workers: int = 1, **over: Any) -> State:
    fields = {"tiers": TIERS, "cluster": a_cluster(t0=workers), "now_s": NOW_S, "record": None} | over
    return State(jobs={job.id: job for job in jobs}, **fields)


def end_of(job: Job, state: State) -> JobEnd:
    return job_end(job, knowledge(state))


def test_a_new_job_on_an_idle_cluster_ends_when_its_steps_are_done() -> None:
    job = a_job("new", submitted_at_s=NOW_S)
    end = end_of(job, a_state(job))
    assert end.finish and end.finish.at_s == pytest.approx(200.0) == end.earliest_at_s
    assert (end.fastest, end.is_speed_known, end.blocked) == ("t0", True, None)


def test_new_jobs_share_with_those_that_the_round_knows() -> None:
    """One worker: j0 has 100 steps left and all of it; the newcomer's 100 come beside them: both end at 300 s."""
    record = a_record("max_min_fairness", [[1.0]], [1], steps_remaining=[100], now_s=NOW_S)
    old, new = a_job("j0", state=JobState.LEASED, generation=1), a_job("new", submitted_at_s=NOW_S)
    state = a_state(old, new, record=record)
    first, last = end_of(old, state), end_of(new, state)
    assert first.finish and first.finish.at_s == pytest.approx(200.0), "the round's forecast does not know newcomers"
    assert last.finish and last.finish.at_s == pytest.approx(300.0, abs=1.0)
    starts = job_start(new, knowledge(state))
    assert starts and starts.at_s >= NOW_S and job_start(old, knowledge(state)) is None


def test_a_gang_that_no_plan_moves_is_forecast_on_its_workers() -> None:
    """It holds the one worker and is no part of the round's problem."""
    record = a_record("max_min_fairness", [[1.0]], [1], steps_remaining=[100], now_s=NOW_S, job_ids=("j0",))
    lease = Lease(
        job_id="stays",
        generation=1,
        combination=("stays",),
        accelerator_type="t0",
        worker_ids=("t0-0",),
        round_index=1,
        expires_at_s=NOW_S + 10,
    )
    record = replace(record, plan=replace(record.plan, leases=(lease,)))
    waits = a_job("j0", submitted_at_s=50.0)
    stays = a_job("stays", spec={"preemptible": False, "total_steps": 60}, state=JobState.LEASED, generation=1)
    end = end_of(stays, a_state(stays, waits, record=record))
    assert end.finish and end.finish.low_s <= 160.0 <= end.finish.at_s <= 220.0


def test_no_job_is_expected_to_end_sooner_than_what_is_left_takes_alone() -> None:
    """The round was decided at 0 s, and the job has made no step since."""
    record = a_record("max_min_fairness", [[1.0]], [1], steps_remaining=[100], now_s=0.0)
    job = a_job("j0", submitted_at_s=0.0)
    end = end_of(job, a_state(job, record=record))
    assert end.finish and end.finish.at_s == 200.0 == end.earliest_at_s
    assert NOW_S <= end.finish.low_s <= end.finish.at_s <= end.finish.high_s


@pytest.mark.parametrize(
    ("over", "code"),
    [({"pause_requested": True}, "Paused"), ({"waits_for": ("a",)}, "WaitingForJobs")],
)
def test_a_job_for_which_somebody_has_to_act_has_no_end_but_a_reason(over: dict[str, Any], code: str) -> None:
    job = a_job("j0", **over)
    end = end_of(job, a_state(job))
    assert end.finish is None and end.blocked and end.blocked.code == code and end.earliest_at_s == 200.0


def test_a_gang_that_no_type_holds_has_no_end_at_all() -> None:
    job = a_job("j0", spec={"scale_factor": 2, "cpu_cores": 0})
    end = end_of(job, a_state(job))
    assert (end.finish, end.earliest_at_s, end.fastest) == (None, None, None)


def test_a_cordoned_node_is_no_place_to_start() -> None:
    """The one node is closed: alone it would take 100 s, but nothing says when it will run."""
    job, status = a_job("j0"), NodeStatus(name="node-0", state=NodeState.CORDONED, is_cordoned=True)
    end = end_of(job, a_state(job, nodes={"node-0": status}))
    assert end.finish is None and end.earliest_at_s == 200.0


jobs = st.lists(
    st.tuples(
        st.integers(1, 500),  # steps
        st.sampled_from([1, 1, 2]),  # scale factor
        st.booleans(),  # the round knows it
        st.sampled_from(["waits", "runs", "paused"]),
        st.floats(-50.0, 2000.0),  # deadline from now
    ),
    min_size=1,
    max_size=6,
)


@given(drawn=jobs, workers=st.integers(2, 4), age_s=st.sampled_from([0.0, 9.0]))
def test_a_deadline_is_read_off_the_expected_end(drawn: list[Any], workers: int, age_s: float) -> None:
    """For every job: bounds in order, no end before the earliest, and an outlook that the interval bears out."""
    made = []
    for index, (steps, size, _, how, deadline_s) in enumerate(drawn):
        spec = {"total_steps": steps, "scale_factor": size, "deadline_at_s": NOW_S + deadline_s, "cpu_cores": 0}
        over = {"state": JobState.LEASED, "generation": 1} if how == "runs" else {"pause_requested": how == "paused"}
        made.append(a_job(f"j{index}", spec=spec, submitted_at_s=float(index), **over))
    allocated = [job for job, (*_, in_round, how, _) in zip(made, drawn, strict=True) if in_round and how != "paused"]
    record = None
    if allocated:
        record = a_record(
            "max_min_fairness",
            [[float(job.spec.scale_factor)] for job in allocated],
            [workers],
            job_ids=tuple(job.id for job in allocated),
            scale_factor=[job.spec.scale_factor for job in allocated],
            steps_remaining=[job.spec.total_steps for job in allocated],
            now_s=NOW_S - age_s,
        )
    basis = knowledge(a_state(*made, workers=workers, record=record))
    for job in made:
        end, view = job_end(job, basis), deadline_view(job, basis)
        assert view is not None and view.expected_finish_at_s == (end.finish and end.finish.at_s)
        assert (end.finish is None) == job.pause_requested
        if end.finish is None:
            assert view.outlook in ("unknown", "missed")
            continue
        assert end.finish.low_s <= end.finish.at_s <= end.finish.high_s
        assert end.earliest_at_s is not None and end.earliest_at_s <= end.finish.at_s + 1e-6
        assert (view.outlook == "met") == (end.finish.high_s <= view.deadline_at_s)
        if view.outlook == "at_risk":
            assert end.finish.low_s <= view.deadline_at_s < end.finish.high_s


def test_what_is_said_of_a_new_job_holds_on_a_virtual_cluster() -> None:
    """Submitted in the middle of a round, beside others: its end falls into the interval that it was told then."""
    world = World()
    others = [world.submit(300) for _ in range(4)]
    world.run(lambda: world.clock.now_s() > 25.0)
    job_id = world.submit(100)
    snapshot, now_s = world.store.snapshot(), world.clock.now_s()
    state = State(
        jobs=snapshot.jobs,
        tiers=snapshot.tiers,
        cluster=world.store.cluster(),
        record=snapshot.round_records[-1],
        nodes=snapshot.nodes,
        now_s=now_s,
    )
    predicted = job_end(world.job(job_id), knowledge(state, OracleThroughputs(RATES))).finish
    world.run(lambda: world.is_done(job_id, *others))
    ended_at_s = world.job(job_id).finished_at_s
    assert predicted and ended_at_s and predicted.holds(ended_at_s), (predicted, ended_at_s)
