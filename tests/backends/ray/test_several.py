"""One service on this machine and on a Ray cluster at once: each is a region."""

import json
import sys
from pathlib import Path

import pytest

from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster, NodeSpec
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
LIMIT_S = 120
PROGRAM = """
import time
from gavel_runtime import job

for step in job.steps(total=100):
    time.sleep(0.02)
"""


def test_jobs_run_in_both_regions_and_here_when_the_whole_cluster_is_gone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    argv = [sys.executable, "-u", str(tmp_path / "train.py")]
    with LocalRayCluster([NodeSpec(name="node-0", resources={"gavel:a": 1})]) as cluster:
        ray = {
            "ray_address": cluster.address,
            "ray_node_dir": str(tmp_path / "state" / "nodes"),
            "ray_report_period_s": REPORT_PERIOD_S,
        }
        backends = {"here": {"backend": "local", "cpu_workers": "2"}, "far": {"backend": "ray", **ray}}
        own = {"GAVEL_BACKEND": "several", "GAVEL_BACKENDS": json.dumps(backends), "GAVEL_ROUND_DURATION_S": "10"}
        with (
            ServiceProcess(tmp_path / "state", {**own, **cluster.environment}) as running,
            Client(running.url, running.operator_token) as gavel,
        ):
            assert wait_until(lambda: regions(gavel) == {"here", "far"}, LIMIT_S), running.output()
            ids = [gavel.submit(argv=argv, regions=[region])["id"] for region in ("here", "far")]
            ended = [gavel.wait(each, timeout_s=LIMIT_S) for each in ids]
            assert [each["state"] for each in ended] == ["COMPLETED"] * 2, [each["message"] for each in ended]
            assert [{name.partition("@")[2] for name in each["received_s"]} for each in ended] == [{"here"}, {"far"}]
            cluster.kill_all()
            again = gavel.submit(argv=argv, regions=["here"])["id"]
            assert gavel.wait(again, timeout_s=LIMIT_S)["state"] == "COMPLETED"
            unreached = "Region far (ray) cannot be reached since"
            assert wait_until(lambda: any(note.startswith(unreached) for note in gavel.cluster()["notes"]), LIMIT_S)
            assert regions(gavel) == {"here"}


def regions(gavel: Client) -> set[str]:
    return {each["id"].partition("@")[2] for each in gavel.cluster()["workers"]}
