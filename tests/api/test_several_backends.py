"""The API of a service with several backends: regions that cannot be reached now, and what jobs left in each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.several.homes import speeds_file
from gavel.backends.several.link_speeds import LinkSpeeds
from tests.api.conftest import Service, serve
from tests.api.test_regions import BODY, REGIONS

BACKENDS = {name: {"backend": "simulated"} for name in ("eu", "us", "ap")}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Of its three regions `ap` has no node now."""
    folder = tmp_path_factory.mktemp("several")
    yield from serve(folder, cluster=REGIONS, backend="several", backends=BACKENDS)


@pytest.mark.parametrize(
    "fields",
    [
        {"regions": ["ap"]},
        {"data_region": "ap", "data_bytes": 1},
        {"regions": ["ap"], "scale_factor": 64, "accelerator_types": ["h100"], "node_labels": {"disk": "nvme"}},
    ],
)
def test_a_job_for_a_region_that_cannot_be_reached_now_waits_for_it(several: Service, fields: dict[str, Any]) -> None:
    _, client = several.user()
    answer = client.post("/v1/jobs", json={**BODY, **fields})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"regions": ["mars"]}, "no node is in region mars; there are ap, eu, us"),
        ({"regions": ["eu"], "scale_factor": 64}, "64 is more than any type has"),
        ({"regions": ["eu"], "accelerator_types": ["h100"]}, "there is no accelerator type h100"),
        (
            {"idle_s": 60, "mode": "interactive", "total_steps": None},
            "backend several does not see whether",
        ),
    ],
)
def test_what_no_region_can_have_is_refused(several: Service, fields: dict[str, Any], words: str) -> None:
    _, client = several.user()
    answer = client.post("/v1/jobs", json={**BODY, **fields})
    assert answer.status_code == 422 and words in answer.text, answer.text


def test_metrics_have_the_nodes_of_each_region(several: Service) -> None:
    text = several.operator().get("/metrics").text
    counts = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("gavel_region_nodes{")]
    assert sorted(counts) == ["0.0", "1.0", "1.0"] and 'gavel_region_nodes{region="ap"} 0.0' in text


def test_metrics_have_the_measured_bandwidth_of_each_link(several: Service) -> None:
    """As the scheduler has stored it; nothing before the first copy."""
    assert "gavel_region_link_copies{" not in several.operator().get("/metrics").text
    speeds = LinkSpeeds(speeds_file(several.settings.state_dir))
    speeds.add(["eu"], "us", 300_000_000, 2.0)
    speeds.add(["eu"], "us", 100_000_000, 2.0)
    text = several.operator().get("/metrics").text
    assert 'gavel_region_link_bytes_per_second{origin="eu",target="us"} 1e+08' in text
    assert 'gavel_region_link_copies{origin="eu",target="us"} 2.0' in text


def test_a_node_is_named_with_its_region(several: Service) -> None:
    operator = several.operator()
    assert operator.get("/v1/nodes/node-1@eu").status_code == 404
    assert operator.get("/v1/nodes/node-1@eu@us").status_code == 422


@pytest.fixture
def two_places(tmp_path: Path) -> Iterator[Service]:
    """Two regions with storages of their own: the state folder, and a folder that Ray's nodes see."""
    (tmp_path / "own").mkdir()
    ray = {"backend": "ray", "ray_address": "127.0.0.1:1", "ray_checkpoint_dir": str(tmp_path / "ray")}
    backends = {"here": {"backend": "local"}, "far": ray}
    yield from serve(tmp_path / "own", cluster=REGIONS, backend="several", backends=backends)


def test_files_and_checkpoints_of_all_regions_are_shown_and_the_newer_file_counts(
    two_places: Service, tmp_path: Path
) -> None:
    _, client = two_places.user()
    job_id = client.post("/v1/jobs", json={**BODY, "regions": ["here"]}).json()["id"]
    for root, name, text in ((tmp_path / "own/outputs", "1-5", "old"), (tmp_path / "ray/_outputs", "2-9", "new")):
        (root / job_id).mkdir(parents=True)
        (root / job_id / "result").write_text(text)
        (root / job_id / name).write_text("")
    for root, name in ((tmp_path / "own/checkpoints", "1-5"), (tmp_path / "ray", "2-9")):
        (root / job_id / name).mkdir(parents=True)
        (root / job_id / name / "weights").write_text(name)
    files = client.get(f"/v1/jobs/{job_id}/files").json()
    assert [each["path"] for each in files["items"]] == ["1-5", "2-9", "result"]
    assert client.get(f"/v1/jobs/{job_id}/files/content?path=result").text == "new"
    checkpoints = client.get(f"/v1/jobs/{job_id}/checkpoints").json()
    assert [each["name"] for each in checkpoints["items"]] == ["2-9", "1-5"]
    for name in ("1-5", "2-9"):
        assert name.encode() in client.get(f"/v1/jobs/{job_id}/checkpoints/{name}").content
    assert client.get(f"/v1/jobs/{job_id}/checkpoints/3-3").status_code == 404
    assert json.loads(client.get(f"/v1/jobs/{job_id}/files/none").text)["status"] == 404
