"""The whole service on a Slurm cluster, over REST."""

from pathlib import Path

import pytest

from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.backends.whole_service import (
    brings_its_code_and_leaves_its_results,
    is_reached_by_its_user,
    trains_and_survives_a_killed_service,
)
from tests.nginx import free_port

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def service(folder: Path, environment: dict[str, str]) -> ServiceProcess:
    own = {
        "GAVEL_BACKEND": "slurm",
        "GAVEL_SLURM__SHARED_DIR": str(folder / "shared"),
        "GAVEL_SLURM__NODE_DIR": str(folder / "state" / "nodes"),
        "GAVEL_SLURM__GRES": '["acc"]',
        "GAVEL_ROUND_DURATION_S": "10",
    }
    return ServiceProcess(folder / "state", {**own, **environment})


def test_a_job_trains_on_slurm_and_survives_a_killed_service(one_node: LocalSlurmCluster, tmp_path: Path) -> None:
    trains_and_survives_a_killed_service(service(tmp_path, one_node.environment))


def test_jobs_run_where_slurm_puts_them(tmp_path: Path) -> None:
    """1 Slurm prefers the other node, 2 a job runs there, and its worker is seen there, 3 so does a second one."""
    nodes = [SlurmNodeSpec(name=f"node-{index}", gres={"acc:a": 1}) for index in range(2)]
    with LocalSlurmCluster(nodes) as cluster:
        cluster.run("scontrol", "update", "NodeName=node-0", "Weight=100")
        own = {"GAVEL_SLURM__PLACEMENT": "slurm", **cluster.environment}
        with service(tmp_path, own) as running, Client(running.url, running.operator_token) as gavel:

            def node_of(worker: str) -> str:
                return next((each["node"] for each in gavel.cluster()["workers"] if each["id"] == worker), "")

            assert wait_until(lambda: node_of("a-0") == "node-0", 90)
            first = gavel.submit(kind="mlp-b256", total_steps=400)
            assert wait_until(lambda: gavel.job(first["id"])["steps_reported"] > 0, 120)
            second = gavel.submit(kind="mlp-b256", total_steps=100)
            done = [gavel.wait(each["id"], timeout_s=240) for each in (first, second)]
            assert [(each["state"], each["steps_done"]) for each in done] == [("COMPLETED", 400), ("COMPLETED", 100)]
            assert node_of("a-0") == "node-1"
            assert not gavel.cluster()["notes"]
        assert not running.processes_left()


def test_a_job_brings_its_code_and_leaves_its_results(one_node: LocalSlurmCluster, tmp_path: Path) -> None:
    brings_its_code_and_leaves_its_results(
        service(tmp_path, one_node.environment), tmp_path, tmp_path / "shared/checkpoints/_outputs"
    )


@pytest.mark.parametrize("orders", ["files", "connection"])
def test_a_session_is_reached_by_its_user(one_node: LocalSlurmCluster, tmp_path: Path, orders: str) -> None:
    port = free_port()
    own = {
        "GAVEL_SLURM__ORDERS": orders,
        "GAVEL_PORT": str(port),
        "GAVEL_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "GAVEL_SLURM__NODE_DIR": str(tmp_path / "nodes"),
    }
    is_reached_by_its_user(service(tmp_path, {**one_node.environment, **own}), free_port())


def test_a_cluster_that_is_not_there_is_reported_over_rest_while_the_rest_goes_on(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=gavel\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n0\n")
    with (
        service(tmp_path, {"SLURM_CONF": str(conf)}) as running,
        Client(running.url, running.operator_token) as gavel,
    ):
        assert wait_until(lambda: any("Slurm does not answer" in note for note in gavel.cluster()["notes"]), 120)
        assert [tier["name"] for tier in gavel.tiers()]
