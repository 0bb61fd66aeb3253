"""Why a job waits and when it will run, over REST; predictions compared with what happened."""

from dataclasses import replace

import pytest

from gavel.types import Expected, JobState, Lease, Prediction
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record
from tests.mechanism.world import World

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 1000}


def test_a_waiting_job_is_told_why_where_it_stands_and_when(service: Service) -> None:
    _, ann = service.user()
    first, second = (str(ann.post("/v1/jobs", json=PROGRAM).json()["id"]) for _ in range(2))
    index = len(service.store.rounds()) + 1
    lease = Lease(
        job_id=first,
        generation=1,
        combination=(first,),
        accelerator_type="fast",
        worker_ids=("fast-0",),
        round_index=index,
        expires_at_s=NOW_S + 10,
    )
    record = a_record([lease], {first: [0.5, 0.0], second: [0.5, 0.0]}, round_index=index)
    allocation = replace(record.allocation, policy="hierarchical")
    service.change(round=replace(record, problem=replace(record.problem, now_s=NOW_S), allocation=allocation))
    answer = ann.get(f"/v1/jobs/{second}/explanation").json()
    assert (answer["code"], answer["position"], answer["jobs_ahead"]) == ("BehindFairShare", 1, 0)
    assert answer["tier_objective"] == (
        "Jobs of gold share by the objective fairness. "
        "Choose this when users compete, and no user should gain by submitting more."
    )
    assert answer["binding"] == {
        "accelerator_type": "fast",
        "price": 1.0,
        "source": "load",
        "leased_workers": 1,
        "workers": 2,
    }
    assert (
        answer["target_fraction"] == {"fast": 0.5, "slow": 0.0} and "fast has 1 of 2 workers free" in answer["message"]
    )
    assert NOW_S <= answer["est_start_low_at_s"] <= answer["est_start_at_s"] <= answer["est_start_high_at_s"]
    assert answer["est_start_at_s"] <= answer["est_finish_at_s"]
    assert answer["est_finish_low_at_s"] <= answer["est_finish_at_s"] <= answer["est_finish_high_at_s"]
    ann.post(f"/v1/jobs/{second}/pause")
    paused = ann.get(f"/v1/jobs/{second}/explanation").json()
    assert (paused["code"], paused["est_start_at_s"], paused["est_finish_at_s"]) == ("Paused", None, None)
    assert paused["would_unblock"] == [f"Run `gavel job resume {second}`."]


def test_a_job_submitted_just_now_waits_for_the_next_round(service: Service) -> None:
    _, ann = service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    answer = ann.get(f"/v1/jobs/{job_id}/explanation").json()
    assert answer["code"] == "PendingEvaluation" and answer["est_finish_at_s"] > NOW_S


def test_predictions_are_counted_against_what_happened(service: Service) -> None:
    _, ann = service.user()
    assert ann.get("/v1/calibration").json()["finishes_inside"] is None
    made = []
    for _ in range(4):
        job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
        finish = Expected(at_s=NOW_S + 100, low_s=NOW_S + 50, high_s=NOW_S + 200)
        start = Expected(at_s=NOW_S, low_s=NOW_S, high_s=NOW_S + 10)
        made.append(Prediction(job_id=job_id, made_at_s=NOW_S, start=start, finish=finish))
    service.change(predictions=tuple(made))
    ends = (60.0, 110.0, 150.0, 300.0)
    for each, end_s in zip(made, ends, strict=True):
        job = replace(service.store.job(each.job_id), state=JobState.COMPLETED, steps_done=1000)
        service.change(replace(job, started_at_s=NOW_S + end_s / 20, finished_at_s=NOW_S + end_s))
    answer = ann.get("/v1/calibration").json()
    assert (answer["predictions"], answer["target"], answer["is_learned"]) == (4, 0.9, False)
    assert (answer["finishes_inside"], answer["starts_inside"]) == (0.75, 0.75)
    assert answer["median_error_s"] == pytest.approx(45.0)


def test_the_scheduler_predicts_each_new_job_once_and_settles_it_when_it_completes() -> None:
    """Real rounds on a virtual cluster: jobs of several lengths, more than there are workers for.

    They share alike: their kind is ten times as fast as is believed before it is measured, and those that went first
    would all end before that is known.
    """
    world = World()
    ids = [world.submit(100 * (1 + index % 3)) for index in range(8)]
    world.run(lambda: all(world.store.job(each).state is JobState.COMPLETED for each in ids))
    predictions = world.store.predictions()
    assert {each.job_id for each in predictions} == set(ids)
    assert all(each.finished_at_s == world.store.job(each.job_id).finished_at_s for each in predictions)
    assert sum(each.finish.holds(each.finished_at_s or 0.0) for each in predictions) >= 6, predictions


def test_the_end_of_an_elastic_job_says_for_which_size_it_is(service: Service) -> None:
    _, ann = service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM | {"sizes": [1, 2], "global_batch": 64}).json()["id"]
    answer = ann.get(f"/v1/jobs/{job_id}/explanation").json()
    assert answer["est_finish_at_s"] > NOW_S
    assert answer["est_finish_assumes"] == "for 1 worker, the size in force; rounds may choose another"
    rigid = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    assert ann.get(f"/v1/jobs/{rigid}/explanation").json()["est_finish_assumes"] == ""
