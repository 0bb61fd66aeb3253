"""Commands to the scheduler over REST: acknowledged at once, waited for on request, read by their author."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest

from gavel.ports import Changes
from gavel.types import NodeState, NodeStatus, Operation, OperationState, Scope
from tests.api.conftest import NOW_S, Service, wait_until

DONE = {"state": OperationState.DONE, "finished_at_s": NOW_S, "result": {"state": "cordoned"}}


@pytest.fixture(scope="module", autouse=True)
def nodes(service: Service) -> None:
    nodes = (NodeStatus(name="node-0", since_s=NOW_S), NodeStatus(name="gone", state=NodeState.LOST, since_s=NOW_S))
    service.change(nodes=nodes)


@contextmanager
def a_scheduler(service: Service, decide: Callable[[Operation], Operation]) -> Iterator[None]:
    """Another thread that ends each command as soon as it is there, as the scheduler's ticks do."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.005):
            view = service.store.snapshot()
            if view.commands:
                service.store.commit(view.version, Changes(operations=tuple(map(decide, view.commands))))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=20)


def test_a_command_is_acknowledged_before_it_is_applied(service: Service) -> None:
    """1. 202 with the operation. 2. The scheduler ends it. 3. The operation says so."""
    operator = service.operator()
    answer = operator.post("/v1/nodes/node-0/cordon")
    assert (answer.status_code, answer.json()["state"], answer.json()["error"]) == (202, "pending", None)
    (command,) = service.store.snapshot().commands
    assert (command.kind, command.subject, command.by) == ("node.cordon", "node/node-0", "operator")
    service.change(operations=(replace(command, **DONE),))
    shown = operator.get(answer.headers["location"]).json()
    assert (shown["state"], shown["result"], shown["finished_at_s"]) == ("done", {"state": "cordoned"}, NOW_S)


def test_who_waits_is_answered_when_it_is_done(service: Service) -> None:
    with a_scheduler(service, lambda command: replace(command, **DONE)):
        answer = service.operator().post("/v1/nodes/node-0/cordon", headers={"Prefer": "wait=10"})
    assert (answer.status_code, answer.json()["state"]) == (200, "done")
    assert answer.headers["preference-applied"] == "wait=10"


def test_who_waits_for_nobody_is_answered_after_the_time_given(service: Service) -> None:
    answer = service.operator().post("/v1/nodes/node-0/cordon", headers={"Prefer": "respond-async, wait=0"})
    assert (answer.status_code, answer.json()["state"]) == (202, "pending")
    with a_scheduler(service, lambda command: replace(command, **DONE)):
        wait_until(lambda: not service.store.snapshot().commands)


REFUSALS = {
    "NotFound": (404, "not-found"),
    "Conflict": (409, "conflict"),
    "StaleVersion": (412, "stale-version"),
    "InvalidRequest": (422, "invalid-request"),
    "SomethingNew": (500, "internal-error"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_what_the_scheduler_refuses_is_a_problem(service: Service, kind: str) -> None:
    field = "window_s" if kind == "InvalidRequest" else ""

    def refuse(command: Operation) -> Operation:
        failed = {"state": OperationState.FAILED, "finished_at_s": NOW_S}
        return replace(command, **failed, error="not so", error_kind=kind, error_field=field)  # type: ignore[arg-type]

    operator = service.operator()
    with a_scheduler(service, refuse):
        waited = operator.post("/v1/nodes/node-0/drain", json={"window_s": 5}, headers={"Prefer": "wait=10"})
        later = operator.post("/v1/nodes/node-0/drain", json={"window_s": 5})
        where = later.headers["location"]
        wait_until(lambda: operator.get(where).json()["state"] == "failed")
    assert (waited.status_code, waited.json()["type"]) == REFUSALS[kind]
    shown = operator.get(where).json()["error"]
    assert (shown["type"], shown["detail"], shown["field"]) == (REFUSALS[kind][1], "not so", field or None)


def test_an_operation_is_shown_to_who_asked_for_it_and_to_operators(service: Service) -> None:
    name, ann = service.user()
    _, bob = service.user()
    job = service.client(service.token(name, Scope.JOB, "j1"))
    give = service.store.add_command
    of_ann = give("node.cordon", subject="node/x", body={}, by=name, now_s=NOW_S)
    of_job = give("node.cordon", subject="node/x", body={}, by="job/j1", now_s=NOW_S)
    service.change(operations=tuple(replace(each, **DONE) for each in (of_ann, of_job)))

    def asking(operation: Operation) -> list[int]:
        clients: list[httpx.Client] = [ann, bob, job, service.operator()]
        return [client.get(f"/v1/operations/{operation.id}").status_code for client in clients]

    assert asking(of_ann) == [200, 404, 404, 200]
    assert asking(of_job) == [404, 404, 200, 200]


def test_nodes_are_listed_with_their_state_and_what_they_hold(service: Service) -> None:
    _, ann = service.user()
    listed = {node["name"]: node for node in ann.get("/v1/nodes").json()["items"]}
    assert listed["node-0"]["state"] == "ready" and listed["node-0"]["capacity"] == {"fast": 2, "slow": 4}
    assert listed["gone"]["state"] == "lost" and listed["gone"]["capacity"] == {}
    assert ann.get("/v1/nodes/node-0").json() == listed["node-0"]
    assert ann.get("/v1/nodes/none").status_code == 404


def test_a_command_about_no_node_is_refused_before_anything_is_written(service: Service) -> None:
    answer = service.operator().post("/v1/nodes/none/drain", json={"window_s": 5})
    assert (answer.status_code, service.store.snapshot().commands) == (404, ())
    for window_s in (-1, 1e12, None, "soon"):
        answer = service.operator().post("/v1/nodes/node-0/drain", json={"window_s": window_s})
        assert answer.status_code == 422, answer.text
