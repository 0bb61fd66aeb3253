"""Simulations of several regions, from the texts that `gavel simulate` takes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.errors import InvalidRequest
from gavel.simulator.setup import cluster_of

GB = 10**9


def test_a_cluster_in_regions_is_read_from_text() -> None:
    cluster = cluster_of("v100:2:1@eu,v100:3@us")
    assert cluster.capacity_workers() == {"v100@eu": 2, "v100@us": 3}
    assert {node.name: node.region for node in cluster.nodes} == {
        "v100-eu-node-0": "eu",
        "v100-eu-node-1": "eu",
        "v100-us-node-0": "us",
    }
    assert {worker.price_usd_per_hour for worker in cluster.workers} == {0.74}


def test_a_type_is_named_once_in_each_region() -> None:
    with pytest.raises(InvalidRequest, match="v100@eu twice"):
        cluster_of("v100:2@eu,v100:3@us,v100:1@eu")


def test_a_simulation_of_regions_shows_moves_and_egress(tmp_path: Path) -> None:
    """Four jobs with data in eu, which has one worker; us has three."""
    trace, out = tmp_path / "jobs.jsonl", tmp_path / "out"
    job = {"submitted_at_s": 0, "kind": "k", "total_steps": 7200, "throughput_steps_per_s": {"v100": 1.0}}
    data = {"data_region": "eu", "data_bytes": 100 * GB}
    trace.write_text("".join(json.dumps({"id": f"j{index}", **job, **data}) + "\n" for index in range(4)))
    arguments = ["--trace", str(trace), "--cluster", "v100:1@eu,v100:3@us", "--round", "60", "--out", str(out)]
    result = CliRunner().invoke(app, ["simulate", *arguments, "--checkpoint-bytes", str(GB)])
    assert result.exit_code == 0, result.output
    assert "moves between regions" in result.output and "egress GB (USD)" in result.output
    (seen,) = json.loads((out / "results.json").read_text())["policies"].values()
    assert (seen["moves"], seen["egress_bytes"], seen["egress_usd"]) == (3, 300 * GB, 0)
    assert seen["figures"]["mean_jct_h"] == pytest.approx((2 + 3 * (2 + 800 / 3600)) / 4, rel=0.02)


def test_without_regions_nothing_is_said_of_moves(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_time_s,duration_s,num_gpus\n0,60,1\n")
    result = CliRunner().invoke(app, ["simulate", "--trace", str(trace), "--cluster", "v100:1"])
    assert result.exit_code == 0 and "moves between" not in result.output
