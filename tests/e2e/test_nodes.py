"""Operators' commands on a real service: a drain with real gangs, and kill -9 with commands that were acknowledged."""

from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import create_engine, text

from gavel.client import Client, Node
from gavel.demo.service import ServiceProcess, wait_until
from gavel.store.sql import SqlStore
from tests.trains import trains

LIMIT_S = 60
TRAINS = trains(0.02)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    settings = {"GAVEL_ROUND_DURATION_S": "30", "GAVEL_LEASE_GRACE_S": "1"}
    with ServiceProcess(tmp_path_factory.mktemp("nodes") / "state", settings) as running:
        yield running


@pytest.fixture
def operator(service: ServiceProcess) -> Iterator[Client]:
    with Client(service.url, service.operator_token) as client:
        assert wait_until(lambda: bool(client.nodes()), LIMIT_S)
        yield client


def applied_to(url: str, node: str) -> int:
    """Commands that the audit log says were applied to a node."""
    engine = create_engine(url)
    with engine.connect() as connection:
        query = text("SELECT count(*) FROM audit WHERE subject = :subject")
        count = int(connection.execute(query, {"subject": f"node/{node}"}).scalar_one())
    engine.dispose()
    return count


def only(client: Client) -> Node:
    (node,) = client.nodes()
    return node


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_drain_empties_the_node_in_the_middle_of_a_round_and_loses_no_step(
    service: ServiceProcess, operator: Client
) -> None:
    """1. Jobs train in a round of 30 s. 2. Drained within 4 s: nothing runs, all is checkpointed. 3. They go on."""
    name = only(operator)["name"]
    ids = [operator.submit(kind=f"operator/k{i}", argv=TRAINS, total_steps=100_000)["id"] for i in range(2)]
    assert wait_until(lambda: all(operator.job(i)["steps_reported"] > 5 for i in ids), LIMIT_S)
    asked = operator.drain(name, 4.0, wait_s=10)
    assert (asked["state"], asked["result"]["state"]) == ("done", "draining")
    assert wait_until(lambda: only(operator)["state"] == "drained", LIMIT_S)
    assert wait_until(lambda: service.processes_left() == [], LIMIT_S)
    jobs = [operator.job(i) for i in ids]
    assert [(job["state"], job["core_state"]) for job in jobs] == [("PREEMPTED", "QUEUED")] * 2
    done = [job["steps_done"] for job in jobs]
    assert min(done) > 5
    assert operator.uncordon(name, wait_s=10)["result"]["state"] == "ready"
    assert wait_until(lambda: all(operator.job(i)["steps_reported"] > done[n] for n, i in enumerate(ids)), LIMIT_S), (
        "they go on from their checkpoints, without waiting for the next round"
    )
    for job_id in ids:
        operator.cancel(job_id)


@pytest.mark.full
@pytest.mark.timeout(240)
def test_acknowledged_commands_outlive_kill_9_and_each_is_applied_once(
    service: ServiceProcess, operator: Client
) -> None:
    """1. Another process's command is found. 2. Commands are acknowledged, then kill -9. 3. One more comes while nobody
    runs. 4. After the restart all are done, in order, each once.
    """
    name, url = only(operator)["name"], f"sqlite:///{service.state_dir / 'gavel.db'}"
    store = SqlStore(url)
    command = {"subject": f"node/{name}", "body": {}, "by": "operator", "now_s": 1.0}
    first = store.add_command("node.cordon", **command)
    assert wait_until(lambda: store.operation(first.id).state.value == "done", LIMIT_S)
    audited = applied_to(url, name)
    headers = {"Authorization": f"Bearer {service.operator_token}"}
    acknowledged = []
    for _ in range(3):
        for what in ("cordon", "uncordon"):
            answer = httpx.post(f"{service.url}/v1/nodes/{name}/{what}", headers=headers, timeout=60)
            assert answer.status_code == 202, answer.text
            acknowledged.append(answer.json()["id"])
    service.kill()
    late = store.add_command("node.cordon", **command)
    store.close()
    service.start()
    with Client(service.url, service.operator_token) as again:
        every = [*acknowledged, late.id]
        assert wait_until(lambda: all(again.operation(i)["state"] == "done" for i in every), LIMIT_S)
        assert only(again)["state"] == "cordoned"
    assert applied_to(url, name) == audited + len(every)
