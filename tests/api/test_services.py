"""What a submission of an inference service may say, and how one is changed."""

from dataclasses import replace
from typing import Any

import pytest

from api.http.errors import Problem
from api.submission.inference import check_domains
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.ports import Changes
from gavel.types import Check, ReplicaSpec, ServiceSpec, Serving
from tests.api.conftest import Service
from tests.builders import a_spec
from tests.mechanism.world import a_cluster_of_nodes

SERVICE: dict[str, Any] = {"port": 0, "readiness": {"path": "/ready"}, "replicas": 2, "replicas_max": 3}


@pytest.mark.parametrize(
    ("over", "field", "words"),
    [
        ({"service": None}, "service", "needs its port and a readiness check"),
        ({"mode": "batch"}, "service", "add mode: service"),
        ({"service": {"port": 0}}, "service.readiness", "required"),
        ({"service": {"readiness": {}}}, "service.port", "required"),
        ({"service": SERVICE | {"port": 8000}}, "service.port", "give 0 for a free port"),
        ({"service": SERVICE | {"replicas": 4}}, "service", "from 4 \\(replicas_min\\)|to 3"),
        ({"service": SERVICE | {"min_available": 3}}, "service", "at most replicas \\(2\\)"),
        ({"service": SERVICE | {"surge": 0, "min_available": 2}}, "service", "no way to replace a replica"),
        ({"service": SERVICE | {"spread_hard": True}}, "service.spread_by", "node, or a label"),
        (
            {"service": SERVICE | {"spread_by": "node", "spread_hard": True, "replicas_max": 200}},
            "service.replicas_max",
            "can never be apart",
        ),
        ({"service": SERVICE | {"demand": 5}}, "service", "go together"),
        ({"service": SERVICE | {"demand": -1, "rate": 1}}, "service.demand", "0"),
        ({"service": SERVICE | {"demand": "measured", "rate": 1}}, "service", "needs metrics and requests_metric"),
        ({"service": SERVICE | {"metrics": "/m", "requests_metric": "n"}}, "service", "add demand"),
        ({"service": SERVICE | {"demand": 5, "rate": 1, "metrics": "/m"}}, "service", "give metrics and requests"),
        ({"service": SERVICE | {"demand": 5, "rate": {"no-such-type": 1}}}, "service.rate", "no accelerator type that"),
        ({"service": SERVICE | {"demand": 5, "rate": 0}}, "service.rate", "greater|valid"),
        ({"total_steps": 5}, "total_steps", "a service has no end"),
        ({"longest_s": 600.0}, "longest_s", "only an interactive session"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(
    service: Service, over: dict[str, Any], field: str, words: str
) -> None:
    _, ann = service.user()
    body = {"argv": ["serve"], "mode": "service", "service": SERVICE} | over
    answer = ann.post("/v1/jobs", json={name: value for name, value in body.items() if value is not None})
    assert answer.status_code == 422, answer.text
    (error, *_) = answer.json()["errors"]
    assert error["field"].removeprefix("body.").startswith(field)
    assert any(word.replace("\\", "") in error["message"].lower() for word in words.lower().split("|")), error


def test_its_number_and_its_program_change_and_nothing_of_a_batch_job(service: Service) -> None:
    _, ann = service.user()
    made = ann.post("/v1/jobs", json={"argv": ["serve"], "mode": "service", "service": SERVICE}).json()
    assert (made["mode"], made["preemptible"], made["service"]["min_available"]) == ("service", False, 1)
    path, match = f"/v1/jobs/{made['id']}", {"If-Match": "*"}
    assert ann.get(f"{path}/endpoints").json() == {"items": []}
    assert ann.get(f"{path}/endpoints/prometheus").json() == []
    patched = ann.patch(path, json={"replicas": 3}, headers=match).json()
    assert (patched["service"]["replicas"], patched["service"]["version"]) == (3, 1)
    assert "has 2 to 3 replicas" in ann.patch(path, json={"replicas": 9}, headers=match).text
    patched = ann.patch(path, json={"new_version": {"argv": ["serve", "2"]}}, headers=match).json()
    assert (patched["argv"], patched["service"]["version"]) == (["serve", "2"], 2)
    refused = ann.patch(path, json={"new_version": {"env": {"GAVEL_X": "1"}}}, headers=match)
    assert (refused.status_code, "GAVEL_" in refused.text) == (422, True)
    batch = ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()["id"]
    assert "is no service" in ann.patch(f"/v1/jobs/{batch}", json={"replicas": 1}, headers=match).text
    assert ann.get(f"/v1/jobs/{batch}/endpoints").status_code == 409


MEASURED = {"demand": "measured", "rate": 40, "metrics": "/metrics", "requests_metric": "http_requests_total"}


def test_a_demand_is_shown_and_changes_and_its_replicas_are_not_stated(service: Service) -> None:
    _, ann = service.user()
    body = {"argv": ["serve"], "mode": "service", "service": SERVICE | MEASURED}
    made = ann.post("/v1/jobs", json=body).json()
    shown = made["service"]["demand"]
    assert (shown["stated"], shown["rates"], shown["now"], shown["replicas"]) == ("measured", {"": 40}, None, None)
    assert (shown["metrics"], shown["requests_metric"], shown["bound"]) == ("/metrics", "http_requests_total", "")
    path, match = f"/v1/jobs/{made['id']}", {"If-Match": "*"}
    assert ann.patch(path, json={"demand": 12.5}, headers=match).json()["service"]["demand"]["stated"] == 12.5
    assert "follow its demand" in ann.patch(path, json={"replicas": 3}, headers=match).text
    assert (
        ann.patch(path, json={"demand": "measured"}, headers=match).json()["service"]["demand"]["stated"] == "measured"
    )
    assert ann.patch(path, json={"demand": -1}, headers=match).status_code == 422
    again = ann.post(f"{path}/resubmit", json={})
    assert again.status_code == 201, again.text
    assert again.json()["service"]["demand"]["rates"] == {"": 40}
    changes = [each for each in ann.get(f"{path}/audit").json()["items"] if "stated_demand" in (each["after"] or {})]
    assert len(changes) == 2


def test_rate_headroom_and_bounds_change_later(service: Service) -> None:
    _, ann = service.user()
    body = {"argv": ["serve"], "mode": "service", "service": SERVICE | {"demand": 5, "rate": 1}}
    made = ann.post("/v1/jobs", json=body).json()
    path, match = f"/v1/jobs/{made['id']}", {"If-Match": "*"}
    change = {"rate": 2.5, "headroom": 0.5, "replicas_min": 1, "replicas_max": 9}
    patched = ann.patch(path, json=change, headers=match).json()["service"]
    assert (patched["demand"]["rates"], patched["demand"]["headroom"]) == ({"": 2.5}, 0.5)
    assert (patched["replicas_min"], patched["replicas_max"], patched["demand"]["stated"]) == (1, 9, 5)
    newest = ann.get(f"{path}/audit").json()["items"][0]
    assert newest["after"] == change
    fast = ann.get("/v1/cluster").json()["workers"][0]["accelerator_type"]
    patched = ann.patch(path, json={"rate": {fast: 4}}, headers=match).json()["service"]
    assert patched["demand"]["rates"] == {fast: 4}
    refused = ann.patch(path, json={"rate": {"no-such-type": 4}}, headers=match)
    assert (refused.status_code, "is no accelerator type" in refused.text) == (422, True)
    refused = ann.patch(path, json={"replicas_min": 10}, headers=match)
    assert (refused.status_code, "10 is more than replicas_max, 9" in refused.text) == (422, True)
    for wrong in ({"rate": 0}, {"rate": {}}, {"headroom": -1}, {"headroom": 11}, {"replicas_max": 0}):
        assert ann.patch(path, json=wrong, headers=match).status_code == 422, wrong


def test_bounds_keep_the_number_that_is_stated(service: Service) -> None:
    """One without a demand has as many as its user says: bounds that leave these out are refused, but not with both."""
    _, ann = service.user()
    made = ann.post("/v1/jobs", json={"argv": ["serve"], "mode": "service", "service": SERVICE}).json()
    path, match = f"/v1/jobs/{made['id']}", {"If-Match": "*"}
    assert made["service"]["replicas"] == 2
    refused = ann.patch(path, json={"replicas_max": 1, "replicas_min": 0}, headers=match)
    assert (refused.status_code, "has 0 to 1 replicas, and would have 2" in refused.text) == (422, True)
    both = ann.patch(path, json={"replicas_max": 1, "replicas_min": 0, "replicas": 1}, headers=match).json()["service"]
    assert (both["replicas"], both["replicas_min"], both["replicas_max"]) == (1, 0, 1)
    assert "has no rate" in ann.patch(path, json={"rate": 3}, headers=match).text
    assert "has no rate" in ann.patch(path, json={"headroom": 0.1}, headers=match).text
    batch = ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()["id"]
    assert "is no service" in ann.patch(f"/v1/jobs/{batch}", json={"replicas_max": 3}, headers=match).text


def test_a_demand_is_only_of_a_service_with_a_rate_and_measured_only_with_metrics(service: Service) -> None:
    _, ann = service.user()
    match = {"If-Match": "*"}
    plain = ann.post("/v1/jobs", json={"argv": ["serve"], "mode": "service", "service": SERVICE}).json()["id"]
    assert "has no rate" in ann.patch(f"/v1/jobs/{plain}", json={"demand": 5}, headers=match).text
    body = {"argv": ["serve"], "mode": "service", "service": SERVICE | {"demand": 5, "rate": 1}}
    stated = ann.post("/v1/jobs", json=body).json()["id"]
    assert "names no metrics" in ann.patch(f"/v1/jobs/{stated}", json={"demand": "measured"}, headers=match).text
    batch = ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1}).json()["id"]
    assert "is no service" in ann.patch(f"/v1/jobs/{batch}", json={"demand": 5}, headers=match).text


def test_one_that_was_made_smaller_may_be_submitted_again(service: Service) -> None:
    _, ann = service.user()
    fields = SERVICE | {"replicas": 3, "replicas_min": 1, "min_available": 2}
    made = ann.post("/v1/jobs", json={"argv": ["serve"], "mode": "service", "service": fields}).json()
    ann.patch(f"/v1/jobs/{made['id']}", json={"replicas": 1}, headers={"If-Match": "*"})
    again = ann.post(f"/v1/jobs/{made['id']}/resubmit", json={})
    assert again.status_code == 201, again.text
    assert (again.json()["service"]["replicas"], again.json()["service"]["min_available"]) == (1, 1)
    assert again.json()["service"]["version"] == 1


def test_a_replica_is_not_submitted_again_but_its_service_is(service: Service) -> None:
    _, ann = service.user()
    made = ann.post("/v1/jobs", json={"argv": ["serve"], "mode": "service", "service": SERVICE}).json()
    spec = service.store.job(made["id"]).spec
    assert spec.service
    replica = ReplicaSpec(service=made["id"], version=1, serving=spec.service.serving)
    changes = Changes(made=(replace(spec, service=None, replica=replica),), made_at_s=5.0)
    service.store.commit(service.store.snapshot().version, changes)
    (job,) = (each for each in ann.get("/v1/jobs").json()["items"] if each["replica_of"] == made["id"])
    refused = ann.post(f"/v1/jobs/{job['id']}/resubmit", json={})
    assert (refused.status_code, f"resubmit {made['id']}" in refused.text) == (422, True)


@pytest.mark.parametrize(("scale_factor", "places"), [(1, 3), (2, 2), (3, 0)])
def test_only_places_that_hold_a_whole_replica_count(scale_factor: int, places: int) -> None:
    """The nodes n0 to n2 have 1, 2 and 2 workers of one type; of n2's other type there are too few."""
    cluster = a_cluster_of_nodes(n0="fast", n1="fast fast", n2="fast fast slow")
    serving = Serving(port=0, readiness=Check())
    fields: dict[str, Any] = {
        "replicas_min": 1,
        "min_available": 0,
        "serving": serving,
        "spread_by": "node",
        "spread_hard": True,
    }
    for count in range(1, 5):
        service = ServiceSpec(replicas=count, replicas_max=count, **fields)
        spec = a_spec(scale_factor=scale_factor, service=service, total_steps=None)
        if count <= places:
            check_domains(spec, Feasibility(cluster))
            continue
        with pytest.raises(Problem) as refused:
            check_domains(spec, Feasibility(cluster))
        assert f"{count} can never be apart: the cluster has {places} nodes" in str(refused.value.detail)


def test_replicas_that_could_never_be_replaced_are_refused() -> None:
    """With a hard spread over all places there is none for a new replica, so one has to be allowed to go first."""
    feasibility = Feasibility(a_cluster_of_nodes(n0="fast", n1="fast"))
    fields: dict[str, Any] = {"replicas_min": 1, "replicas_max": 2, "spread_by": "node", "spread_hard": True}
    serving = Serving(port=0, readiness=Check())
    for replicas, available, is_refused in ((2, 2, True), (2, 1, False), (1, 1, False)):
        service = ServiceSpec(replicas=replicas, min_available=available, serving=serving, **fields)
        spec = a_spec(service=service, total_steps=None)
        if not is_refused:
            check_domains(spec, feasibility)
            continue
        with pytest.raises(Problem) as refused:
            check_domains(spec, feasibility)
        detail = str(refused.value.detail)
        assert detail.startswith("service.min_available: ") and "give at most 1" in detail


def test_what_is_shown_of_how_many_stay_ready_is_what_holds(service: Service) -> None:
    """A service of two that was made smaller, or may have none beside the old ones, keeps no more than it can."""
    _, ann = service.user()
    made = ann.post(
        "/v1/jobs",
        json={"argv": ["serve"], "mode": "service", "service": SERVICE | {"replicas_min": 1, "min_available": 2}},
    )
    path, match = f"/v1/jobs/{made.json()['id']}", {"If-Match": "*"}
    assert made.json()["service"]["min_available"] == 2
    smaller = ann.patch(path, json={"replicas": 1}, headers=match)
    assert smaller.status_code == 200, smaller.text
    assert smaller.json()["service"]["min_available"] == 1
