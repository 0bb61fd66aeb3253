"""The client against the real service, and against a wire that breaks."""

import ast
import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gavel.client as module
from gavel import code_tree
from gavel.client import Client, GavelApiError, ServiceUnreachable, answers, bodies, script
from gavel.client.errors import refusal
from gavel.types import JobState, Lease, Scope
from scripts import client_types
from tests.api.conftest import NOW_S, Service, service
from tests.api.rounds import a_record

__all__ = ["service"]

PROGRAM = ["python", "train.py"]


@pytest.fixture
def ann(service: Service) -> Iterator[Client]:
    name, _ = service.user("gold", "silver")
    with Client(service.url, service.token(name)) as client:
        yield client


@pytest.fixture
def operator(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token("operator", Scope.OPERATOR)) as client:
        yield client


ROOMS = ("answers", "bodies")


def test_the_client_s_types_are_those_of_the_description() -> None:
    """They are made from it: `make client-types` brings them up to date, and leaves no other file there."""
    folder = Path(module.__file__).parent
    made = client_types.modules()
    assert {path: (folder / path).read_text() for path in made} == dict(made)
    assert {path.relative_to(folder) for path in folder.glob("*/*.py") if path.parent.name in ROOMS} == {*made}


@pytest.mark.parametrize("described", [*answers.__all__, *bodies.__all__])
def test_a_type_can_be_read_while_the_program_runs(described: str) -> None:
    """Editors and checks of answers ask for it: every type that a field names is there."""
    kind = getattr(module, described)
    assert get_origin(kind) is Literal or get_type_hints(kind)


def test_the_client_names_no_type_of_an_answer_twice() -> None:
    assert sorted(module.__all__) == sorted(set(module.__all__))


def imported_by(path: Path) -> set[str]:
    """The modules that a file imports, but for those of the standard library."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}


def test_the_client_imports_nothing_of_ours_but_itself() -> None:
    for path in Path(module.__file__).parent.rglob("*.py"):
        others = {name for name in imported_by(path) if not f"{name}.".startswith("gavel.client.")}
        assert others <= {"httpx", "pathspec", "gavel.code_tree"}, path
    assert imported_by(Path(code_tree.__file__)) == set(), "service, client and supervisor read it"


def test_a_job_can_be_submitted_read_listed_and_cancelled(service: Service, ann: Client) -> None:
    job = ann.submit(argv=PROGRAM, name="first", total_steps=10, env={"SEED": "7"}, throughputs={"fast": 2.0})
    assert (job["state"], job["tier"], job["argv"]) == ("QUEUED", "gold", PROGRAM)
    assert ann.job(job["id"])["name"] == "first"
    assert [each["id"] for each in ann.jobs(tier="gold")] == [job["id"]]
    assert list(ann.jobs(tier="silver")) == []
    assert ann.cancel(job["id"])["state"] == "CANCELLING"
    assert next(ann.events(job["id"]))["kind"] == "job.submitted"


def test_jobs_come_page_after_page_up_to_the_limit(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PAGE_LIMIT", 3)
    ids = [ann.submit(argv=PROGRAM, total_steps=1)["id"] for _ in range(7)]
    assert [job["id"] for job in ann.jobs()] == ids[::-1]
    assert [job["id"] for job in ann.jobs(limit=5)] == ids[:1:-1]


def test_one_key_makes_one_job(ann: Client) -> None:
    jobs = [ann.submit(argv=PROGRAM, total_steps=1, idempotency_key="k1") for _ in range(2)]
    assert jobs[0]["id"] == jobs[1]["id"] and len(list(ann.jobs())) == 1
    with pytest.raises(GavelApiError, match="Idempotency-Key"):
        ann.submit(argv=PROGRAM, total_steps=2, idempotency_key="k1")


def test_a_refusal_names_status_title_detail_and_field(ann: Client) -> None:
    with pytest.raises(GavelApiError) as refused:
        ann.submit(argv=PROGRAM, total_steps=10, tier="platinum")
    assert (refused.value.status, refused.value.field) == (422, "tier")
    assert "platinum is not one of your tiers" in refused.value.detail
    assert str(refused.value).count("tier:") == 1
    with pytest.raises(GavelApiError) as refused:
        ann.submit(argv=PROGRAM, total_steps=0)
    assert refused.value.field == "body.total_steps"
    with pytest.raises(GavelApiError) as refused:
        ann.job("no-such-job")
    assert (refused.value.status, refused.value.field) == (404, None)


def test_a_job_id_cannot_reach_another_path(ann: Client) -> None:
    with pytest.raises(GavelApiError) as refused:
        ann.job("../tiers")
    assert refused.value.status in (404, 422)


def test_an_unknown_token_is_a_401(service: Service) -> None:
    with Client(service.url, "nobody") as client, pytest.raises(GavelApiError) as refused:
        list(client.jobs())
    assert refused.value.status == 401


def test_operators_change_tiers_users_and_tokens(service: Service, operator: Client) -> None:
    made = operator.put_tier("bronze", weight=0.5)
    with pytest.raises(GavelApiError) as refused:
        operator.put_tier("bronze", weight=0.7)
    assert refused.value.status == 412
    changed = operator.put_tier("bronze", weight=0.7, objective="fifo", version=made["version"])
    assert changed in operator.tiers() and changed["objective"] == "fifo"
    assert operator.put_user("zoe", ["bronze"]) in operator.users()
    with Client(service.url, operator.create_token("zoe")) as zoe:
        assert zoe.submit(argv=PROGRAM, total_steps=1)["tier"] == "bronze"


def test_what_the_scheduler_committed_can_be_read(service: Service, operator: Client) -> None:
    job = operator.submit(argv=PROGRAM, total_steps=10, name="seen", tier="gold")
    lease = Lease(
        job_id=job["id"],
        generation=1,
        combination=(job["id"],),
        accelerator_type="fast",
        worker_ids=("fast-0",),
        round_index=1,
        expires_at_s=NOW_S + 10,
    )
    leased = replace(service.store.job(job["id"]), state=JobState.LEASED, generation=1)
    service.change(leased, round=a_record([lease], {job["id"]: (0.75, 0.25)}))
    assert operator.job(job["id"])["worker_ids"] == ["fast-0"]
    assert [row["target"] for row in operator.allocations()["rows"]] == [[0.75, 0.25]]
    assert operator.rounds(limit=1)[0]["leases"][0]["job_id"] == job["id"]
    assert operator.rounds(before=1) == []
    holders = {worker["id"]: worker["job_ids"] for worker in operator.cluster()["workers"]}
    assert holders["fast-0"] == [job["id"]] and holders["slow-0"] == []
    assert operator.throughputs()["items"] == []
    assert "fairness" in operator.policies()["tier_objectives"]
    assert operator.health() == "ok"


def end(service: Service, job_id: str, state: JobState = JobState.COMPLETED) -> None:
    job = service.store.job(job_id)
    service.change(replace(job, state=state, finished_at_s=NOW_S + 9, steps_done=job.spec.total_steps))


def test_wait_returns_the_ended_job_or_says_that_it_took_too_long(service: Service, ann: Client) -> None:
    job = ann.submit(argv=PROGRAM, total_steps=1)
    with pytest.raises(TimeoutError, match="QUEUED"):
        ann.wait(job["id"], timeout_s=0)
    ending = threading.Timer(0.05, end, (service, job["id"]))
    ending.start()
    assert ann.wait(job["id"], timeout_s=20)["state"] == "COMPLETED"
    ending.join()


def test_followed_logs_hold_every_character_once_and_end_with_the_job(service: Service, ann: Client) -> None:
    job = ann.submit(argv=PROGRAM, total_steps=1)
    path = service.logs / job["id"]
    path.write_bytes("première".encode()[:6])  # half of the è is still to come
    parts = ann.read_logs(job["id"], follow=True)
    assert next(parts) == "premi"
    path.write_bytes("première\n".encode())
    end(service, job["id"])
    assert "".join(parts) == "ère\n"
    assert ann.logs(job["id"], offset=2, limit_bytes=2) == ("em", 4)
    assert "".join(ann.read_logs(job["id"])) == "première\n"


# --- a wire that breaks


class Wire(httpx.BaseTransport):
    """Loses the first `losses` answers after the service has acted, then lets them through."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.through = httpx.HTTPTransport()
        self.keys: list[str | None] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self.through.handle_request(request)
        self.keys.append(request.headers.get("Idempotency-Key"))
        if len(self.keys) <= self.losses:
            answer.close()
            raise httpx.ReadError("the connection was reset")
        return answer

    def close(self) -> None:
        self.through.close()


@pytest.fixture
def breaking(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, Wire]]:
    monkeypatch.setattr(script, "PAUSES_S", (0.0, 0.0, 0.0, 0.0))
    name, _ = service.user()
    wire = Wire(losses=2)
    with Client(service.url, service.token(name)) as client:
        client._http._transport.close()
        client._http._transport = wire
        yield client, wire


def test_a_submit_whose_answer_was_lost_is_repeated_under_its_key_and_makes_one_job(
    breaking: tuple[Client, Wire],
) -> None:
    client, wire = breaking
    job = client.submit(argv=PROGRAM, total_steps=1)
    assert len(wire.keys) == 3 and len(set(wire.keys)) == 1 and wire.keys[0]
    assert [each["id"] for each in client.jobs()] == [job["id"]]


def test_a_call_that_must_not_be_repeated_is_not(breaking: tuple[Client, Wire]) -> None:
    client, wire = breaking
    with pytest.raises(ServiceUnreachable):
        client.create_token("operator")
    assert len(wire.keys) == 1


def test_nothing_listening_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PAUSES_S", (0.0, 0.0, 0.0, 0.0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}/", "t") as client, pytest.raises(ServiceUnreachable, match=str(port)):
        client.tiers()


@given(
    status=st.integers(400, 599),
    body=st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
        )
        .map(json.dumps)
        .map(str.encode),
    ),
    kind=st.sampled_from(["application/problem+json", "application/json", "text/html", ""]),
)
def test_any_refusal_becomes_an_error_that_can_be_printed(status: int, body: bytes, kind: str) -> None:
    answer = httpx.Response(status, content=body, headers={"Content-Type": kind})
    error = refusal(answer)
    assert error.status == status and str(status) in str(error)


def test_a_problem_document_is_read_field_by_field() -> None:
    problem: dict[str, Any] = {
        "title": "No",
        "detail": "weight: too large",
        "errors": [{"field": "weight", "message": "m"}],
    }
    error = refusal(httpx.Response(422, json=problem))
    assert (error.title, error.detail, error.field) == ("No", "weight: too large", "weight")
    assert str(error) == "No (422): weight: too large"


def test_a_sweep_is_submitted_paused_changed_and_its_losers_cancelled(ann: Client) -> None:
    made = ann.submit_array(
        {"argv": ["train", "--rate", "{RATE}"], "total_steps": 5}, parameters={"RATE": ["1", "2", "3"]}
    )
    winner, *losers = made["items"]
    assert [job["argv"][-1] for job in made["items"]] == ["1", "2", "3"]
    assert [job["id"] for job in ann.jobs(array_id=made["array_id"])] == [job["id"] for job in made["items"]][::-1]
    assert ann.pause(winner["id"])["state"] == "PAUSED" and ann.resume(winner["id"])["state"] == "QUEUED"
    edited = ann.edit(winner["id"], weight=2.0, labels={"best": "yes"})
    assert (edited["weight"], edited["labels"]) == (2.0, {"best": "yes"})
    with pytest.raises(GavelApiError, match="412"):
        ann.edit(winner["id"], weight=3.0, version=edited["version"] - 1)
    done = ann.cancel_many(array_id=made["array_id"], keep=[winner["id"]])
    assert done == {"cancelling": sorted(job["id"] for job in losers), "skipped": []}
    history = [entry["action"] for entry in ann.audit(job_id=winner["id"])]
    assert history == ["job.edited", "job.resumed", "pause.requested"]


def test_a_batch_under_one_key_is_one_batch(ann: Client) -> None:
    jobs: list[module.JobSubmit] = [{"argv": PROGRAM, "total_steps": 5, "name": name} for name in ("a", "b")]
    first, again = (ann.submit_batch(jobs, idempotency_key="batch") for _ in range(2))
    assert first == again and [job["name"] for job in first["items"]] == ["a", "b"]


def test_an_operator_limits_a_tier_and_sees_what_it_used(operator: Client) -> None:
    tier = operator.put_tier("metered", max_jobs=3, accelerator_hours_per_month=1.5)
    assert (tier["max_jobs"], tier["accelerator_hours_per_month"], tier["cap"]) == (3, 1.5, 1.0)
    used = operator.usage("metered")
    assert (used["accelerator_hours"], used["accelerator_hours_per_month"], used["unfinished_jobs"]) == (0.0, 1.5, 0)
    assert next(operator.audit(subject="tier/metered"))["after"]["max_jobs"] == 3
