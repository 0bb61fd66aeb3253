"""Regions in submissions and answers, over a real server."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gavel.types import Cluster, Node, Residence, Worker, in_region
from tests.api.conftest import NOW_S, Service, serve

REGIONS = Cluster(
    nodes=tuple(Node(name=f"n-{region}", region=region) for region in ("eu", "us")),
    workers=tuple(
        Worker(id=f"{region}-{index}", node=f"n-{region}", accelerator_type=f"v100@{region}")
        for region, count in (("eu", 2), ("us", 4))
        for index in range(count)
    ),
)
BODY: dict[str, Any] = {"argv": ["x"], "total_steps": 5}
DATA = {"data_region": "us", "data_bytes": 10**9}


@pytest.fixture(scope="module")
def regional(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    yield from serve(tmp_path_factory.mktemp("regions"), cluster=REGIONS)


def refused(service: Service, **fields: Any) -> dict[str, Any]:
    """Return the refusal of a job with these fields."""
    _, client = service.user()
    answer = client.post("/v1/jobs", json={**BODY, **fields})
    assert answer.status_code == 422, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"regions": ["eu", "mars"]}, "regions", "no node is in region mars; there are eu, us"),
        ({"data_region": "uss", "data_bytes": 1}, "data_region", "there are eu, us"),
        ({"data_bytes": 1}, "data_region", "say in which region"),
        ({"data_region": "us"}, "data_bytes", "say how large"),
        ({"regions": ["eu"], "scale_factor": 4}, "regions", "It could run in us"),
    ],
)
def test_a_submission_that_no_region_can_have_is_refused(
    regional: Service, fields: dict[str, Any], field: str, words: str
) -> None:
    detail = refused(regional, **fields)
    assert words in str(detail) and field in str(detail)


def test_a_plain_type_means_that_of_every_region(regional: Service) -> None:
    _, client = regional.user()
    body = {**BODY, "accelerator_types": ["v100"], "throughputs": {"v100": 3.0}, "scale_factor": 4}
    assert client.post("/v1/jobs", json=body).status_code == 201
    assert "k80" in str(refused(regional, accelerator_types=["k80"]))


def test_what_was_said_of_regions_is_shown_and_can_be_submitted_again(regional: Service) -> None:
    _, client = regional.user()
    job = client.post("/v1/jobs", json={**BODY, "regions": ["us", "us"], **DATA}).json()
    assert (job["regions"], job["data_region"], job["data_bytes"]) == (["us"], "us", 10**9)
    assert job["residence"] is None
    again = client.post(f"/v1/jobs/{job['id']}/resubmit", json={}).json()
    assert (again["regions"], again["data_region"], again["data_bytes"]) == (["us"], "us", 10**9)


def test_the_region_of_a_job_is_stored_and_shown_with_its_moves(regional: Service) -> None:
    _, client = regional.user()
    job_id = client.post("/v1/jobs", json={**BODY, **DATA}).json()["id"]
    own = Residence(
        region="eu",
        copies=("us", "eu"),
        moved_from="us",
        arrives_at_s=NOW_S + 10,
        moves=1,
        egress_bytes=10**9,
        egress_usd=0.09,
        why="It moves.",
    )
    job = regional.store.job(job_id)
    regional.change(replace(job, residence=own, spec=in_region(job.spec, "eu")))
    stored = regional.store.job(job_id)
    assert (stored.residence, stored.spec.home, stored.spec.needs.regions) == (own, "eu", ("eu",))
    shown = client.get(f"/v1/jobs/{job_id}").json()["residence"]
    assert shown == {
        "region": "eu",
        "why": "It moves.",
        "moved_from": "us",
        "arrives_at_s": NOW_S + 10,
        "moves": 1,
        "egress_bytes": 10**9,
        "egress_usd": 0.09,
    }
    explained = client.get(f"/v1/jobs/{job_id}/explanation").json()
    assert "Moving" in str(explained) and "It moves." in str(explained)


def test_metrics_have_the_egress_of_unfinished_jobs(regional: Service) -> None:
    text = regional.operator().get("/metrics").text
    assert 'gavel_egress_bytes{tier="gold"}' in text and 'gavel_region_jobs{region="eu"} 1.0' in text


def test_regions_that_nobody_tells_apart_are_a_note_of_the_cluster(regional: Service, service: Service) -> None:
    assert any("nodes are in 2 regions" in note for note in regional.operator().get("/v1/cluster").json()["notes"])
    assert not any("regions" in note for note in service.operator().get("/v1/cluster").json()["notes"])
