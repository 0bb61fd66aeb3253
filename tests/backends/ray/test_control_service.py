"""Ways to Ray's control service: through its client server, and through a restart of one that is kept in Redis."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, gang, is_in, spread_gang, stop
from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from gavel.errors import BackendUnavailable
from gavel.ports import ExtendLease, LaunchGang
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import eventually
from tests.backends.ray.clusters import RayHarness, a_service_on, agent_pids

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SILENT = "Ray's control service does not answer: what runs goes on, no gang can start"


def free_port(host: str = "") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def redis() -> Iterator[str]:
    """Address of a Redis of our own, in memory only."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port("127.0.0.1")
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--maxmemory", "64mb"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as server:
        try:
            eventually(lambda: _listens(port))
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.mark.skipif(find_spec("grpc") is None, reason="grpcio is not installed (ray[client])")
def test_a_service_outside_the_cluster_joins_through_rays_client_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 join at ray://, 2 a gang runs, 3 the service dies, 4 the next one adopts it, 5 code reaches the node."""
    port = free_port()
    nodes = [
        NodeSpec(name="head", resources={}, options=(f"--ray-client-server-port={port}",)),
        NodeSpec(name="here", resources={"gavel:a": 2}),
    ]
    with LocalRayCluster(nodes) as cluster:
        address = f"ray://{cluster.address.partition(':')[0]}:{port}"
        with a_service_on(cluster, tmp_path, monkeypatch, workers=2, address=address) as harness:
            harness.backend.execute(gang(harness, "pair", "a-0", "a-1", lasts_s=300))
            harness.wait_until(is_in(GangState.RUNNING, "pair"))
            before = harness.all_processes()
            harness.crash()
            harness.recover()
            harness.wait_until(is_in(GangState.RUNNING, "pair"))
            assert harness.all_processes() == before
            harness.backend.execute(stop("pair"))
            assert exit_of(harness, "pair").outcome is GangOutcome.PREEMPTED
            resource, start = gang(harness, "next", "a-0")
            assert isinstance(start, LaunchGang)
            code = harness.store_code({"word": b"hello"})
            harness.backend.execute([resource, replace(start, argv=("cat", "word"), code=code)])
            assert exit_of(harness, "next").log_tail == "hello"


def test_a_head_that_is_kept_in_redis_comes_back_to_the_same_nodes_and_gangs(
    redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 a gang runs on two nodes, 2 the head is killed and that is said, 3 the gang runs on, its lease extended, 4 the
    head is back: no agent, node or gang was lost, 5 the next gang starts."""
    head = NodeSpec(name="head", resources={}, environment={"RAY_REDIS_ADDRESS": redis})
    workers = [NodeSpec(name=f"node-{index}", resources={"gavel:a": 1}) for index in range(2)]
    with (
        LocalRayCluster([head, *workers]) as cluster,
        a_service_on(cluster, tmp_path, monkeypatch, workers=2) as harness,
    ):
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        before, agents = harness.all_processes(), agent_pids(cluster)
        cluster.kill_node("head")
        eventually(lambda: keeps(harness, "j1") and SILENT in harness.backend.notes())
        expires_at_s = harness.now_s() + 600
        harness.backend.execute([ExtendLease(job_id="j1", generation=1, expires_at_s=expires_at_s)])
        cluster.start_node("head")
        eventually(lambda: keeps(harness, "j1") and not harness.backend.notes(), 60)
        assert (harness.all_processes(), agent_pids(cluster)) == (before, agents)
        harness.backend.execute(stop("j1"))
        assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED
        harness.backend.execute(spread_gang(harness, "j2", 0, 1))
        harness.wait_until(is_in(GangState.RUNNING, "j2"))


def keeps(harness: RayHarness, job_id: str) -> bool:
    """True if the job's gang is seen to run, False while nothing can be seen."""
    with suppress(BackendUnavailable):
        return is_in(GangState.RUNNING, job_id)(harness.backend.observe())
    return False
