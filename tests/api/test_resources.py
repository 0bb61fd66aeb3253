"""Ephemeral resources over REST: a real server and store, the production driver ticked between the calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gavel.client import Client
from gavel.client.answers import Operation
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.simulator.cluster import VirtualCluster
from gavel.types import Scope
from tests.api.conftest import Service
from tests.builders import a_cluster


@dataclass
class Steered:
    """An operator's client, and the scheduler behind the server."""

    operator: httpx.Client
    driver: Driver

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The operation once the scheduler has applied it, or the refusal."""
        asked = self.operator.request(method, f"/v1/{path}", **request)
        if asked.status_code != 202:
            return asked
        self.driver.tick()
        return self.operator.get(asked.headers["location"])

    def shown(self) -> dict[str, tuple[int, int]]:
        """{owner/name: (capacity, generation)} on the only node."""
        resources = self.operator.get("/v1/cluster").json()["resources"]
        return {f"{each['owner']}/{each['name']}": (each["capacity"], each["generation"]) for each in resources}


@pytest.fixture
def steered(service: Service) -> Iterator[Steered]:
    driver = Driver(
        store=service.store,
        backend=VirtualCluster(a_cluster(fast=2, slow=4), {}, service.clock),
        runner=InlineRunner(),
        estimator=ReconciledThroughputs.from_table(()),
        fallback=EqualShare(),
        clock=service.clock,
        settings=service.settings,
    )
    made = Steered(service.operator(), driver)
    yield made
    for name in made.shown():
        owner, short = name.split("/")
        made.ask("DELETE", f"resources/{short}", params={"owner": owner})


def a_name(**over: Any) -> dict[str, Any]:
    return {"capacity": 1, "nodes": "node-0"} | over


def test_a_name_is_put_shown_changed_and_deleted(steered: Steered) -> None:
    done = steered.ask("PUT", "resources/lb", json=a_name()).json()
    (written,) = done["result"]["resources"]
    assert done["state"] == "done" and steered.shown() == {"operator/lb": (1, written["generation"])}
    later = steered.ask("PUT", "resources/lb", json=a_name(capacity=5)).json()["result"]["resources"][0]
    assert later["generation"] > written["generation"] and steered.shown()["operator/lb"][0] == 5
    assert steered.ask("DELETE", "resources/lb").json()["state"] == "done"
    assert steered.shown() == {}
    assert steered.ask("DELETE", "resources/lb").json()["result"] == {"resources": []}


def test_the_client_says_the_same(service: Service, steered: Steered) -> None:
    def finished(asked: Operation) -> Operation:
        steered.driver.tick()
        return client.operation(asked["id"])

    with Client(service.url, service.token("operator", Scope.OPERATOR)) as client:
        done = finished(client.set_resource("lb", 2, ["node-0"], owner="app", wait_s=0))
        generation = done["result"]["resources"][0]["generation"]
        assert client.cluster()["resources"][0]["capacity"] == 2
        stale = finished(client.set_resource("lb", 3, "node-0", owner="app", generation=generation + 1000, wait_s=0))
        assert stale["state"] == "failed"
        finished(client.set_resources([{"name": "x", "owner": "app", **a_name()}], wait_s=0))
        assert set(steered.shown()) == {"app/lb", "app/x"}
        finished(client.delete_resource("lb", owner="app", generation=generation, wait_s=0))
        assert set(steered.shown()) == {"app/x"}


def test_preconditions_are_those_of_http(steered: Steered) -> None:
    first = steered.ask("PUT", "resources/lb", json=a_name(), headers={"If-None-Match": "*"}).json()
    tag = f'"{first["result"]["resources"][0]["generation"]}"'
    again = steered.ask("PUT", "resources/lb", json=a_name(), headers={"If-None-Match": "*"}).json()
    assert again["error"]["type"] == "stale-version"
    stale = steered.ask("PUT", "resources/lb", json=a_name(capacity=2), headers={"If-Match": '"1000000"'}).json()
    assert stale["state"] == "failed" and "read it again" in stale["error"]["detail"]
    assert steered.ask("PUT", "resources/lb", json=a_name(), headers={"If-Match": "*"}).json()["state"] == "done"
    assert steered.ask("PUT", "resources/lb", json=a_name(), headers={"If-Match": tag}).json()["state"] == "done"
    assert steered.ask("PUT", "resources/lb", json=a_name(), headers={"If-Match": "abc"}).status_code == 412


def test_a_batch_is_written_whole_or_not_at_all(steered: Steered) -> None:
    good, bad = {"name": "one", **a_name(owner="app")}, {"name": "two", **a_name(nodes="nowhere")}
    refused = steered.ask("POST", "resources/batch", json={"resources": [good, bad]}).json()
    assert refused["error"]["type"] == "not-found" and steered.shown() == {}
    many = [{"name": f"n{index}", **a_name(nodes=["node-0"], owner="app")} for index in range(64)]
    assert len(steered.ask("POST", "resources/batch", json={"resources": many}).json()["result"]["resources"]) == 64
    assert len(steered.shown()) == 64
    expected = {"name": "n0", **a_name(capacity=2, owner="app"), "expect": {"capacity": 9, "free": 9}}
    assert steered.ask("POST", "resources/batch", json={"resources": [expected]}).json()["state"] == "failed"


def test_a_vector_says_where(steered: Steered) -> None:
    body = a_name(nodes={"node/worker-fast-0": 1}, num_nodes=1)
    (written,) = steered.ask("PUT", "resources/lb", json=body).json()["result"]["resources"]
    assert written["node"] == "node-0"
    nowhere = steered.ask("PUT", "resources/lb", json=a_name(nodes={"node/worker-fast-0": 2})).json()
    assert nowhere["result"] == {"resources": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"nodes": "node-0"}, "capacity"),
        (a_name(capacity=-1), "capacity"),
        (a_name(capacity=1.5), "capacity"),
        (a_name(capacity=1_000_000_001), "capacity"),
        (a_name(ttl_s=0.0), "ttl_s"),
        (a_name(ttl_s=1e9), "ttl_s"),
        (a_name(nodes=[]), "nodes"),
        (a_name(nodes={}), "nodes"),
        (a_name(nodes={"no-slash": 1}), "nodes"),
        (a_name(num_nodes=0), "num_nodes"),
        (a_name(owner="Not An Owner"), "owner"),
        (a_name(surprise=1), "surprise"),
    ],
)
def test_a_body_that_cannot_be_names_the_field(steered: Steered, body: dict[str, Any], field: str) -> None:
    refused = steered.ask("PUT", "resources/lb", json=body)
    assert refused.status_code == 422 and field in refused.json()["detail"]


@pytest.mark.parametrize("owner", ["node", "gavel"])
def test_owners_of_the_scheduler_are_nobodys_to_write(steered: Steered, owner: str) -> None:
    refused = steered.ask("PUT", "resources/lb", json=a_name(owner=owner)).json()
    assert (refused["state"], refused["error"]["type"], refused["error"]["field"]) == (
        "failed",
        "invalid-request",
        "owner",
    )
