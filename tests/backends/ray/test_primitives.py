"""The libraries of ephemeral resources on a Ray cluster, without the service."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[3]
APPLICATION = """
import ray
from gavel.backends.ray.primitives import RayPrimitives
from gavel.ephemeral.libraries.primitives import ABSENT, Alternative, Write
from gavel.errors import BackendUnavailable, Conflict, InvalidResource, NotFound, StaleVersion

class Asks:
    def asks(self): return (Alternative({"app/x": 1}),)

try: RayPrimitives("app")
except BackendUnavailable: print("needs ray.init")
ray.init(log_to_driver=False, logging_level="ERROR")
one = RayPrimitives("app")
node = sorted(one.get_cluster_state())[0]
before = one.get_cluster_state()[node].get("app/x")
one.set_resource(Write("app/x", node, 2))
print("set", one.get_cluster_state()[node]["app/x"])
for write, error in ((Write("other/x", node, 1), Conflict), (Write("app/X", node, 1), InvalidResource),
                     (Write("app/x", "nowhere", 1), NotFound),
                     (Write("app/x", node, 9, expect=ABSENT), StaleVersion)):
    try: one.set_resource(Write("app/y", node, 1), write)
    except error as problem: print(type(problem).__name__)
print("all or none", "app/y" in one.get_cluster_state()[node])
with one.placed(Asks(), tasks=2):
    print("held", one.get_cluster_state()[node]["app/x"].free)
    try:
        with one.placed(Asks(), within_s=0.2): print("never")
    except BackendUnavailable as problem: print("app/x" in str(problem))
print("free", one.get_cluster_state()[node]["app/x"].free)
"""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[LocalRayCluster]:
    nodes = [NodeSpec(name=f"node-{index}", resources={"gavel:a": 1}) for index in range(2)]
    with LocalRayCluster(nodes) as cluster:
        yield cluster


def run(cluster: LocalRayCluster, *arguments: str) -> list[str]:
    """What a program prints that joins the cluster."""
    environment = {**os.environ, **cluster.environment, "RAY_ADDRESS": cluster.address}
    program = [sys.executable, *arguments]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_application_places_its_tasks_by_libraries(two_nodes: LocalRayCluster) -> None:
    shown = run(two_nodes, str(ROOT / "examples" / "ephemeral_on_ray.py"))
    assert shown == ["apart: 2 tasks on 2 nodes", "together: 2 tasks on 1 node"]


def test_names_are_set_held_and_refused_as_in_one_process(two_nodes: LocalRayCluster) -> None:
    assert run(two_nodes, "-c", APPLICATION) == [
        "needs ray.init",
        "set Availability(capacity=2, free=2)",
        "Conflict",
        "InvalidResource",
        "NotFound",
        "StaleVersion",
        "all or none False",
        "held 0",
        "True",
        "free 2",
    ]
