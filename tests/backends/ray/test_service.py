"""The whole service on a Ray cluster, over REST."""

import os
from pathlib import Path

import pytest

from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.backends.whole_service import (
    brings_its_code_and_leaves_its_results,
    is_reached_by_its_user,
    trains_and_survives_a_killed_service,
)
from tests.nginx import free_port

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def service(folder: Path, address: str, environment: dict[str, str]) -> ServiceProcess:
    own = {
        "GAVEL_BACKEND": "ray",
        "GAVEL_RAY_ADDRESS": address,
        "GAVEL_RAY_NODE_DIR": str(folder / "state" / "nodes"),
        "GAVEL_RAY_REPORT_PERIOD_S": str(REPORT_PERIOD_S),
        "GAVEL_ROUND_DURATION_S": "4",
    }
    return ServiceProcess(folder / "state", {**own, **environment})


def test_a_job_trains_on_ray_and_survives_a_killed_service(one_node: LocalRayCluster, tmp_path: Path) -> None:
    trains_and_survives_a_killed_service(service(tmp_path, one_node.address, one_node.environment))


def test_a_job_brings_its_code_and_leaves_its_results(one_node: LocalRayCluster, tmp_path: Path) -> None:
    shared = {"GAVEL_RAY_CHECKPOINT_DIR": str(tmp_path / "shared")}
    brings_its_code_and_leaves_its_results(
        service(tmp_path, one_node.address, {**one_node.environment, **shared}), tmp_path, tmp_path / "shared/_outputs"
    )


def test_a_session_is_reached_by_its_user(one_node: LocalRayCluster, tmp_path: Path) -> None:
    is_reached_by_its_user(service(tmp_path, one_node.address, one_node.environment), free_port())


def test_a_cluster_that_is_not_there_is_said_over_rest_while_the_rest_goes_on(tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in ("PATH",)}
    with service(tmp_path, "127.0.0.1:1", environment) as running, Client(running.url, running.operator_token) as gavel:
        words = "no Ray cluster answers at 127.0.0.1:1"
        assert wait_until(lambda: any(words in note for note in gavel.cluster()["notes"]), 90)
        assert [tier["name"] for tier in gavel.tiers()]
