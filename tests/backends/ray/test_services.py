"""A service on several nodes: its replicas are apart, and the drain of a node costs no request."""

from pathlib import Path

import pytest

from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from gavel.client import Client
from gavel.demo.service import wait_until
from tests.backends.ray.test_service import service
from tests.serving import LIMIT_S, Load, a_service, endpoints, history, stable

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def nodes_of(client: Client, job_id: str) -> list[str]:
    """The nodes of the endpoints."""
    node_of = {worker["id"]: worker["node"] for worker in client.cluster()["workers"]}
    jobs = [client.job(each["job_id"]) for each in endpoints(client, job_id)]
    return sorted(node_of[worker] for job in jobs for worker in job["worker_ids"])


def test_replicas_are_apart_and_a_drain_costs_no_request(tmp_path: Path) -> None:
    three = [NodeSpec(name=f"node-{name}", resources={"gavel:a": 2}) for name in "abc"]
    with (
        LocalRayCluster(three) as cluster,
        service(tmp_path, cluster.address, cluster.environment) as running,
        Client(running.url, running.operator_token) as client,
    ):
        assert wait_until(lambda: len(client.cluster()["workers"]) == 6, LIMIT_S)
        with a_service(client, replicas=2, spread_by="node", spread_hard=True) as job_id:
            assert wait_until(lambda: stable(client, job_id) == 1, LIMIT_S), history(client, job_id)
            emptied, kept = nodes_of(client, job_id)
            with Load(client, job_id) as load:
                client.drain(emptied, 120.0)
                assert wait_until(
                    lambda: len(there := nodes_of(client, job_id)) == 2 and emptied not in there, LIMIT_S
                ), history(client, job_id)
                seen = load.answers["one"]
                assert wait_until(lambda: load.answers["one"] > seen + 50, LIMIT_S), (
                    load.answers,
                    load.failures[:3],
                    endpoints(client, job_id),
                )
            assert not load.failures
            assert kept in nodes_of(client, job_id)
