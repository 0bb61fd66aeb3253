"""The inputs of a job over REST: what no node could have is refused at the submit, with the field and what to write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Service

JOB: dict[str, Any] = {"argv": ["x"], "total_steps": 1}


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("train", "/no/such/set", "data.train: there is no /no/such/set on the service's machine"),
        ("train", "sets/train", "data.train: sets/train is neither an absolute path nor a URL"),
        ("train", "s4://there/x", "data.train: s4://there/x is neither an absolute path nor a URL"),
        ("train", "s3://there/x", "data.train: s3:// needs the package s3fs on the nodes"),
        ("train", "https://elsewhere/x", "data.train: the service fetches nothing from elsewhere (data_hosts)"),
        ("Train", "/", "data.Train"),
        ("train-set", "/", "data.train-set"),
    ],
)
def test_what_cannot_be_an_input_is_refused(start: Callable[..., Service], name: str, source: str, says: str) -> None:
    ann = start(data_hosts="*.example there").user()[1]
    refused = ann.post("/v1/jobs", json={**JOB, "data": {name: source}})
    assert refused.status_code == 422 and says in refused.json()["detail"], refused.text


def test_on_a_ray_cluster_paths_are_those_of_its_nodes(start: Callable[..., Service]) -> None:
    ann = start(backend="ray").user()[1]
    for source in ("/of/the/nodes", "https://there.example/x"):
        assert ann.post("/v1/jobs", json={**JOB, "data": {"train": source}}).status_code == 201


def test_a_job_that_is_submitted_again_has_the_inputs_of_the_old_one(service: Service, tmp_path: Path) -> None:
    _, ann = service.user()
    old = ann.post("/v1/jobs", json={**JOB, "data": {"train": str(tmp_path)}}).json()
    assert ann.post(f"/v1/jobs/{old['id']}/resubmit", json={}).json()["data"] == {"train": str(tmp_path)}
