"""Looking at jobs, listing them, cancelling them, and what their states are called."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gavel.ports import JobEvent
from gavel.types import Job, JobState, Lease, Reason
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


def submit(client: httpx.Client, **over: Any) -> str:
    answer = client.post("/v1/jobs", json=PROGRAM | over)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


def test_a_job_that_has_not_changed_is_not_sent_again(service: Service) -> None:
    _, ann = service.user()
    job_id = submit(ann)
    tag = ann.get(f"/v1/jobs/{job_id}").headers["etag"]
    for seen in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
        answer = ann.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": seen})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    service.change(replace(service.store.job(job_id), steps_reported=7))
    answer = ann.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": tag})
    assert (answer.status_code, answer.json()["steps_reported"]) == (200, 7)
    assert answer.headers["etag"] != tag


def test_pages_hold_every_job_once_newest_first(service: Service) -> None:
    _, ann = service.user()
    made = [submit(ann) for _ in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = ann.get("/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [each["id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "cursor=../x", "state=DONE", "label=x", "user=A B", "tier=%00"]
)
def test_a_list_asked_for_wrongly_says_what_is_wrong(service: Service, query: str) -> None:
    _, ann = service.user()
    answer = ann.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"query.{query.split('=', maxsplit=1)[0]}"


def test_lists_are_filtered_by_tier_label_state_and_user(service: Service) -> None:
    name, ann = service.user("gold", "silver")
    gold = submit(ann, labels={"project": "vision", "x": "a=b"})
    silver = submit(ann, tier="silver", labels={"project": "speech"})
    assert ids(ann.get("/v1/jobs?tier=gold")) == [gold]
    assert ids(ann.get("/v1/jobs?label=project=speech")) == [silver]
    assert ids(ann.get("/v1/jobs", params={"label": "x=a=b"})) == [gold]
    assert ids(ann.get("/v1/jobs?state=QUEUED")) == [silver, gold]
    assert ids(ann.get("/v1/jobs?state=COMPLETED")) == []
    assert ids(ann.get(f"/v1/jobs?user={name}")) == [silver, gold]
    assert ids(ann.get("/v1/jobs?user=bob")) == []
    assert ids(service.operator().get(f"/v1/jobs?user={name}&tier=silver")) == [silver]


def test_cancelling_is_asked_for_once_and_asking_again_changes_nothing(service: Service) -> None:
    _, ann = service.user()
    job_id = submit(ann)
    first, again = (ann.post(f"/v1/jobs/{job_id}/cancel") for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["state"] == "CANCELLING"
    assert first.headers["etag"] == again.headers["etag"]
    service.change(replace(service.store.job(job_id), state=JobState.CANCELLED, finished_at_s=NOW_S))
    assert ann.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    assert ann.get(f"/v1/jobs/{job_id}").json()["state"] == "CANCELLED"


@pytest.mark.parametrize("end", [JobState.COMPLETED, JobState.FAILED])
def test_a_job_that_has_ended_otherwise_cannot_be_cancelled(service: Service, end: JobState) -> None:
    _, ann = service.user()
    job_id = submit(ann)
    service.change(replace(service.store.job(job_id), state=end, finished_at_s=NOW_S))
    answer = ann.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (409, "conflict")


def test_events_are_read_in_order_and_go_on_from_where_one_was(service: Service) -> None:
    _, ann = service.user()
    job_id = submit(ann)
    service.change(
        events=(JobEvent(job_id=job_id, at_s=NOW_S, kind="gang.launched", message="on fast-0", round_index=3),)
    )
    history = ann.get(f"/v1/jobs/{job_id}/events").json()
    assert history["items"][-1]["kind"] == "gang.launched"
    assert history["items"][-1]["round_index"] == 3
    assert [each["gang_size"] for each in history["items"]] == [None] * len(history["items"])
    launched = "The gang was launched on fast-0, fast-1 as number 2, from step 7."
    service.change(
        events=(
            JobEvent(job_id=job_id, at_s=NOW_S, kind="gang.launched", message=launched),
            JobEvent(job_id=job_id, at_s=NOW_S, kind="gang.preempted", message="The lease ended."),
        )
    )
    history = ann.get(f"/v1/jobs/{job_id}/events").json()
    assert [each["gang_size"] for each in history["items"][-2:]] == [2, 0]
    sequences = [each["sequence"] for each in history["items"]]
    assert sequences == sorted(sequences)
    assert history["next_after"] == sequences[-1]
    rest = ann.get(f"/v1/jobs/{job_id}/events", params={"after": history["next_after"]}).json()
    assert rest == {"items": [], "next_after": history["next_after"]}


# --- what a running job looks like ------------------------------------------------------------------------------


@pytest.fixture
def running(start: Callable[..., Service]) -> Iterator[tuple[Service, httpx.Client, Job]]:
    """A job that holds a lease on worker fast-1 with generation 1 in round 1."""
    service = start()
    _, ann = service.user()
    job = service.store.job(submit(ann))
    leased = replace(
        job,
        state=JobState.LEASED,
        generation=1,
        attempt=1,
        started_at_s=NOW_S,
        received_s={"fast": 30.0},
        isolated_time_s=20.0,
    )
    service.change(leased, round=a_record([lease(job)], {job.id: [0.5, 0.25]}))
    service.clock.advance(60)
    yield service, ann, service.store.job(job.id)


def lease(job: Job, **over: Any) -> Lease:
    return Lease(
        **{
            "job_id": job.id,
            "generation": 1,
            "combination": (job.id,),
            "accelerator_type": "fast",
            "worker_ids": ("fast-1",),
            "round_index": 1,
            "expires_at_s": NOW_S + 10,
        }
        | over
    )


def test_a_running_job_says_where_it_runs_and_how_it_fares(running: tuple[Service, httpx.Client, Job]) -> None:
    _, ann, job = running
    view = ann.get(f"/v1/jobs/{job.id}").json()
    assert (view["state"], view["core_state"]) == ("RUNNING", "LEASED")
    assert (view["accelerator_type"], view["worker_ids"]) == ("fast", ["fast-1"])
    assert view["rho"] == pytest.approx(60 / 20)
    assert view["jct_s"] is None


def test_a_finished_job_knows_its_completion_time(running: tuple[Service, httpx.Client, Job]) -> None:
    service, ann, job = running
    service.change(replace(job, state=JobState.COMPLETED, steps_done=100, finished_at_s=NOW_S + 40, exit_code=0))
    view = ann.get(f"/v1/jobs/{job.id}").json()
    assert (view["state"], view["jct_s"], view["rho"], view["exit_code"]) == ("COMPLETED", 40, 2.0, 0)
    assert view["worker_ids"] == []


def test_a_job_that_waits_again_was_preempted_or_lost(running: tuple[Service, httpx.Client, Job]) -> None:
    service, ann, job = running
    service.change(replace(job, state=JobState.QUEUED, reason=Reason.PREEMPTED, preemptions=1))
    other = submit(ann)
    assert ann.get(f"/v1/jobs/{job.id}").json()["state"] == "PREEMPTED"
    assert ids(ann.get("/v1/jobs?state=PREEMPTED&limit=1")) == [job.id]
    assert ids(ann.get("/v1/jobs?state=QUEUED")) == [other]
    service.change(replace(service.store.job(job.id), reason=Reason.LOST))
    assert ids(ann.get("/v1/jobs?state=LOST")) == [job.id]


def test_a_job_has_its_reason_in_words_and_what_helps(running: tuple[Service, httpx.Client, Job]) -> None:
    service, ann, job = running
    waits = replace(job, state=JobState.QUEUED, reason=Reason.PAUSED, message="")
    service.change(waits)
    view = ann.get(f"/v1/jobs/{job.id}").json()
    assert (view["reason"], view["message"]) == ("Paused", "The job is paused.")
    assert view["fix"] == f"Run `gavel job resume {job.id}`."
    service.change(replace(service.store.job(job.id), reason=Reason("FromTheFuture"), message="It waits for 2030."))
    view = ann.get(f"/v1/jobs/{job.id}").json()
    assert (view["reason"], view["message"]) == ("FromTheFuture", "It waits for 2030.")


def test_a_lease_to_be_measured_is_shown_as_profiling(start: Callable[..., Service]) -> None:
    service = start()
    _, ann = service.user()
    job = service.store.job(submit(ann))
    service.change(
        replace(job, state=JobState.LEASED, generation=1, attempt=1),
        round=a_record([lease(job, is_profiling=True)], {job.id: [1.0, 0.0]}),
    )
    assert ids(ann.get("/v1/jobs?state=PROFILING")) == [job.id]
    assert ids(ann.get("/v1/jobs?state=RUNNING")) == []


def test_allocations_rounds_and_the_cluster_tell_of_the_running_job(
    running: tuple[Service, httpx.Client, Job],
) -> None:
    _, ann, job = running
    matrix = ann.get("/v1/allocations/current").json()
    assert (matrix["types"], matrix["capacity"]) == (["fast", "slow"], {"fast": 2, "slow": 4})
    assert [(row["job_id"], row["target"], row["received"]) for row in matrix["rows"]] == [
        (job.id, [0.5, 0.25], [0.5, 0.0])
    ]
    rounds = ann.get("/v1/rounds").json()
    assert (rounds["items"][0]["leases"][0]["job_id"], rounds["next_before"]) == (job.id, None)
    assert ann.get("/v1/rounds/1").json()["solver_outcome"] == "solved"
    workers = {each["id"]: each for each in ann.get("/v1/cluster").json()["workers"]}
    assert (workers["fast-1"]["busy"], workers["fast-1"]["job_ids"]) == (True, [job.id])
    assert (workers["fast-0"]["busy"], workers["fast-0"]["job_ids"]) == (False, [])


def test_metrics_count_jobs_and_compare_target_with_received(running: tuple[Service, httpx.Client, Job]) -> None:
    service, _, job = running
    text = service.operator().get("/metrics").text
    for line in (
        'gavel_jobs{state="LEASED",tier="gold"} 1.0',
        'gavel_allocation_target_fraction{accelerator_type="fast",tier="gold"} 0.25',
        'gavel_allocation_received_fraction{accelerator_type="fast",tier="gold"} 0.25',
        "gavel_round_index 1.0",
        'gavel_http_requests_total{method="POST",route="/v1/jobs",status="201"} 1.0',
    ):
        assert line in text, text
    assert job.id not in text
