"""What users request of their jobs: pause, change, run after others, in arrays and batches; and the answers."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from gavel.ports import ThroughputEstimate, ThroughputSource
from gavel.types import JobState
from tests.api.conftest import NOW_S, Service
from tests.api.test_submit import PROGRAM, refused


def submitted(client: httpx.Client, **over: Any) -> Any:
    answer = client.post("/v1/jobs", json=PROGRAM | over)
    assert answer.status_code == 201, answer.text
    return answer.json()


# --- pause ------------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_paused_at_once_and_resumed(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann)
    paused = ann.post(f"/v1/jobs/{job['id']}/pause")
    assert (paused.status_code, paused.json()["state"]) == (202, "PAUSED")
    assert ann.post(f"/v1/jobs/{job['id']}/pause").json()["version"] == paused.json()["version"]
    assert [each["id"] for each in ann.get("/v1/jobs?state=PAUSED").json()["items"]] == [job["id"]]
    assert ann.get("/v1/jobs?state=QUEUED").json()["items"] == []
    assert ann.post(f"/v1/jobs/{job['id']}/resume").json()["state"] == "QUEUED"


def test_a_running_job_runs_until_its_checkpoint_is_there(service: Service) -> None:
    _, ann = service.user()
    job = service.store.job(submitted(ann)["id"])
    service.change(replace(job, state=JobState.LEASED, generation=1, attempt=1))
    paused = ann.post(f"/v1/jobs/{job.id}/pause").json()
    assert (paused["state"], paused["pause_requested"]) == ("RUNNING", True)


@pytest.mark.parametrize("wish", ["pause", "resume"])
def test_an_ended_job_cannot_be_paused_or_resumed(service: Service, wish: str) -> None:
    _, ann = service.user()
    job = service.store.job(submitted(ann)["id"])
    service.change(replace(job, state=JobState.COMPLETED))
    assert ann.post(f"/v1/jobs/{job.id}/{wish}").status_code == 409


# --- changes ----------------------------------------------------------------------------------------------------


def test_a_change_names_the_version_it_was_made_on(service: Service) -> None:
    _, ann = service.user()
    job = ann.post("/v1/jobs", json=PROGRAM)
    path, tag = job.headers["location"], job.headers["etag"]
    assert ann.patch(path, json={"weight": 2.0}).status_code == 428
    changed = ann.patch(path, json={"weight": 2.0, "labels": {"a": "b"}}, headers={"If-Match": tag})
    assert changed.status_code == 200 and (changed.json()["weight"], changed.json()["labels"]) == (2.0, {"a": "b"})
    assert ann.patch(path, json={"weight": 3.0}, headers={"If-Match": tag}).status_code == 412
    assert ann.patch(path, json={"weight": 3.0}, headers={"If-Match": '"nonsense"'}).status_code == 412
    assert ann.patch(path, json={"weight": 3.0}, headers={"If-Match": changed.headers["etag"]}).status_code == 200
    assert ann.get(path).json()["labels"] == {"a": "b"}


def test_a_user_reaches_the_tiers_priority_and_an_operator_more(service: Service) -> None:
    _, ann = service.user()
    operator = service.operator()
    path = f"/v1/jobs/{submitted(ann, priority=-2)['id']}"
    refused(ann.patch(path, json={"priority": 1}, headers={"If-Match": "*"}), "priority", "at most 0", "operator")
    assert ann.patch(path, json={"priority": 0}, headers={"If-Match": "*"}).json()["priority"] == 0
    assert operator.patch(path, json={"priority": 5}, headers={"If-Match": "*"}).json()["priority"] == 5
    refused(ann.post("/v1/jobs", json=PROGRAM | {"priority": 1}), "priority", "at most 0")


def test_a_tiers_default_priority_is_that_of_its_jobs(service: Service) -> None:
    operator = service.operator()
    operator.put("/v1/tiers/urgent", json={"default_priority": 3})
    _, ann = service.user("urgent")
    assert submitted(ann)["priority"] == 3 and submitted(ann, priority=3)["priority"] == 3


# --- jobs after others ------------------------------------------------------------------------------------------


def test_a_job_names_those_it_waits_for(service: Service) -> None:
    _, ann = service.user()
    first = submitted(ann)
    second = submitted(ann, after=[first["id"], first["id"]])
    assert second["after"] == second["waits_for"] == [first["id"]]


def test_nobody_waits_for_a_job_of_another_or_one_that_has_failed(service: Service) -> None:
    _, ann = service.user()
    _, bob = service.user()
    of_ann = submitted(ann)["id"]
    for job_id in (of_ann, "nosuchjob"):
        refused(bob.post("/v1/jobs", json=PROGRAM | {"after": [job_id]}), "after", f"no job {job_id}")
    service.change(replace(service.store.job(of_ann), state=JobState.FAILED))
    refused(ann.post("/v1/jobs", json=PROGRAM | {"after": [of_ann]}), "after", "FAILED", "submit it again")
    assert [each["id"] for each in ann.get("/v1/jobs").json()["items"]] == [of_ann]


# --- many at once -----------------------------------------------------------------------------------------------


def test_an_array_has_a_job_for_each_combination(service: Service) -> None:
    _, ann = service.user()
    job = PROGRAM | {"argv": ["train", "--rate={RATE}", "{SEED}"], "env": {"A": "1"}}
    body = {"job": job, "parameters": {"RATE": ["0.1", "0.2"], "SEED": ["7", "8"]}}
    answer = ann.post("/v1/jobs/array", json=body, headers={"Idempotency-Key": "sweep"})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert [each["argv"] for each in made["items"]] == [
        ["train", f"--rate={rate}", seed] for rate in ("0.1", "0.2") for seed in ("7", "8")
    ]
    assert len({each["kind"] for each in made["items"]}) == 1
    assert [each["array_index"] for each in made["items"]] == [0, 1, 2, 3]
    env = service.store.job(made["items"][2]["id"]).spec.env
    assert env == {"A": "1", "RATE": "0.2", "SEED": "7", "GAVEL_ARRAY_INDEX": "2"}
    again = ann.post("/v1/jobs/array", json=body, headers={"Idempotency-Key": "sweep"})
    assert again.json() == made and again.headers["idempotency-replayed"] == "true"
    assert len(ann.get(f"/v1/jobs?array_id={made['array_id']}").json()["items"]) == 4


def test_an_array_of_too_many_or_of_nothing_is_refused(service: Service) -> None:
    _, ann = service.user()
    many = {"A": [str(i) for i in range(100)], "B": [str(i) for i in range(11)]}
    for body in ({"parameters": many}, {}, {"count": 2, "parameters": {"A": ["1"]}}):
        refused(ann.post("/v1/jobs/array", json={"job": PROGRAM} | body), "body")
    taken = {"job": PROGRAM, "parameters": {"GAVEL_X": ["1"]}}
    refused(ann.post("/v1/jobs/array", json=taken), "parameters.GAVEL_X", "choose another")
    assert ann.get("/v1/jobs").json()["items"] == []


def test_a_batch_is_submitted_whole_or_not_at_all_and_each_fault_is_named(service: Service) -> None:
    _, ann = service.user()
    good = ann.post("/v1/jobs/batch", json={"jobs": [PROGRAM | {"name": "a"}, PROGRAM | {"name": "b"}]})
    assert good.status_code == 201 and [each["name"] for each in good.json()["items"]] == ["a", "b"]
    bad = [PROGRAM, PROGRAM | {"tier": "platinum"}, PROGRAM | {"scale_factor": 9}]
    answer = ann.post("/v1/jobs/batch", json={"jobs": bad})
    refused(answer, "jobs.1.tier", "platinum")
    refused(answer, "jobs.2.scale_factor")
    refused(
        ann.post("/v1/jobs/batch", json={"jobs": [PROGRAM, {"argv": ["x"], "total_steps": 0}]}),
        "body.jobs.1.total_steps",
    )
    assert len(ann.get("/v1/jobs").json()["items"]) == 2


def test_the_losers_of_a_sweep_are_cancelled_together(service: Service) -> None:
    _, ann = service.user()
    _, bob = service.user()
    made = ann.post("/v1/jobs/array", json={"job": PROGRAM, "count": 4}).json()
    winner, *losers = [each["id"] for each in made["items"]]
    wish = {"array_id": made["array_id"], "keep": [winner]}
    assert bob.post("/v1/jobs/cancel", json=wish).json() == {"cancelling": [], "skipped": []}
    answer = ann.post("/v1/jobs/cancel", json=wish)
    assert (answer.status_code, answer.json()) == (202, {"cancelling": losers, "skipped": []})
    assert ann.get(f"/v1/jobs/{winner}").json()["state"] == "QUEUED"
    assert {ann.get(f"/v1/jobs/{each}").json()["state"] for each in losers} == {"CANCELLING"}


def test_jobs_are_cancelled_by_label_or_id_and_the_rest_is_named(service: Service) -> None:
    _, ann = service.user()
    _, bob = service.user()
    labelled, other = submitted(ann, labels={"sweep": "1"})["id"], submitted(ann)["id"]
    assert ann.post("/v1/jobs/cancel", json={"label": "sweep=1"}).json()["cancelling"] == [labelled]
    of_bob = submitted(bob)["id"]
    answer = ann.post("/v1/jobs/cancel", json={"ids": [other, of_bob, "nosuchjob"]})
    assert answer.json() == {"cancelling": [other], "skipped": [of_bob, "nosuchjob"]}
    refused(ann.post("/v1/jobs/cancel", json={"keep": [other]}), "body", "ids, label or array_id")


def measured(kind: str, steps_per_s: float, **over: object) -> ThroughputEstimate:
    """Return the estimate of a kind that jobs have run."""
    fields = {"scale_factor": 1, "accelerator_type": "fast", "relative_error": 0.02, "measurements": 9}
    source = ThroughputSource.MEASURED
    return ThroughputEstimate(kind=kind, steps_per_s=steps_per_s, source=source, **(fields | over))  # type: ignore[arg-type]


# --- deadlines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "outlook"), [(9.0, "missed"), (10.0, "at_risk"), (10_000.0, "met")]
)  # 100 steps at 10/s alone
def test_the_submit_says_whether_a_deadline_will_be_met(service: Service, seconds: float, outlook: str) -> None:
    _, ann = service.user()
    job = submitted(ann, deadline_at_s=NOW_S + seconds, throughputs={"fast": 10.0, "slow": 5.0})
    deadline = job["deadline"]
    assert deadline["outlook"] == outlook
    assert deadline["earliest_finish_at_s"] == NOW_S + 10.0 <= deadline["expected_finish_at_s"]
    assert deadline["expected_finish_low_at_s"] < deadline["expected_finish_at_s"]
    assert deadline["expected_finish_at_s"] < deadline["expected_finish_high_at_s"]
    assert "takes 10 s alone on fast" in deadline["message"]


@pytest.mark.parametrize("ago_s", [0.0, 1.0, NOW_S])
def test_a_deadline_that_has_passed_is_refused_alone_in_an_array_and_in_a_batch(service: Service, ago_s: float) -> None:
    _, ann = service.user()
    body = {"argv": ["x"], "total_steps": 9, "deadline_at_s": NOW_S - ago_s}
    refused(ann.post("/v1/jobs", json=body), "deadline_at_s", "give an instant to come")
    refused(ann.post("/v1/jobs/array", json={"job": body, "count": 2}), "deadline_at_s", "give an instant to come")
    answer = ann.post("/v1/jobs/batch", json={"jobs": [body]})
    assert answer.status_code == 422 and "give an instant to come" in answer.text


def test_without_a_known_speed_a_deadline_is_unknown_until_it_is_measured(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann, deadline_at_s=NOW_S + 100.0, name="measured-later")
    assert job["deadline"]["outlook"] == "unknown" and submitted(ann)["deadline"] is None
    service.change(throughputs=(measured(job["kind"], 0.5), measured(job["kind"], 0.25, accelerator_type="slow")))
    deadline = ann.get(f"/v1/jobs/{job['id']}").json()["deadline"]
    assert (deadline["outlook"], deadline["earliest_finish_at_s"]) == ("missed", NOW_S + 200.0)


def test_a_spread_or_shared_rate_is_not_taken_for_the_job_s_own(service: Service) -> None:
    """100 steps at 9.96/s end in time; 3.99/s would not, nor would 2/s beside a partner."""
    _, ann = service.user()
    job = submitted(ann, deadline_at_s=NOW_S + 20.0, name="spread-once", scale_factor=2)
    own = {"scale_factor": 2, "accelerator_type": "fast"}
    spread = measured(job["kind"], 3.99, placement="spread", **own)
    shared = measured(job["kind"], 2.0, partner="mlp-b256", **own)
    slow = measured(job["kind"], 1.0, scale_factor=2, accelerator_type="slow")
    service.change(throughputs=(measured(job["kind"], 9.96, **own), slow, spread, shared))
    deadline = ann.get(f"/v1/jobs/{job['id']}").json()["deadline"]
    assert deadline["earliest_finish_at_s"] == pytest.approx(NOW_S + 100 / 9.96)
    assert deadline["outlook"] != "missed"


def test_a_job_that_differs_from_its_kind_is_judged_by_its_own_speed(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann, deadline_at_s=NOW_S + 20.0, name="differs")
    own = measured(f"{job['kind']}#{job['id']}", 1.0)
    service.change(throughputs=(measured(job["kind"], 10.0), own))
    deadline = ann.get(f"/v1/jobs/{job['id']}").json()["deadline"]
    assert (deadline["outlook"], deadline["earliest_finish_at_s"]) == ("missed", pytest.approx(NOW_S + 100.0))


def test_a_paused_job_has_a_deadline_of_which_nothing_is_known_but_why(service: Service) -> None:
    _, ann = service.user()
    job = submitted(ann, deadline_at_s=NOW_S + 1000.0, throughputs={"fast": 10.0, "slow": 5.0})
    ann.post(f"/v1/jobs/{job['id']}/pause")
    deadline = ann.get(f"/v1/jobs/{job['id']}").json()["deadline"]
    assert (deadline["outlook"], deadline["expected_finish_at_s"]) == ("unknown", None)
    assert "paused at step 0 of 100" in deadline["message"]


# --- who decided ------------------------------------------------------------------------------------------------


def test_the_audit_log_names_who_changed_a_job(service: Service) -> None:
    name, ann = service.user()
    operator = service.operator()
    job = submitted(ann)
    operator.post(f"/v1/jobs/{job['id']}/pause")
    ann.patch(f"/v1/jobs/{job['id']}", json={"weight": 2.0}, headers={"If-Match": "*"})
    ann.post(f"/v1/jobs/{job['id']}/cancel")
    entries = ann.get(f"/v1/jobs/{job['id']}/audit").json()["items"]
    assert [(each["action"], each["by"]) for each in entries] == [
        ("cancel.requested", name),
        ("job.edited", name),
        ("pause.requested", "operator"),
    ]
    assert (entries[1]["before"], entries[1]["after"]) == ({"weight": 1.0}, {"weight": 2.0})
    page = operator.get(f"/v1/audit?user={name}&limit=2").json()
    rest = operator.get(f"/v1/audit?user={name}&limit=200&before={page['next_before']}").json()
    assert page["items"] == entries[:2] and rest["items"][0] == entries[2] and rest["next_before"] is None
