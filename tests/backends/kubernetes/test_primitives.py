"""Ephemeral resources on Kubernetes without the service: as in one process, and pods that are placed by them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import LocalKubelets, NodeSpec
from gavel.backends.kubernetes.pods import pod_of
from gavel.backends.kubernetes.primitives import KubernetesPrimitives
from gavel.ephemeral.libraries.anti_affinity import AntiAffinity
from gavel.ephemeral.libraries.primitives import ABSENT, Write
from gavel.errors import Conflict, InvalidRequest, InvalidResource, NotFound, StaleVersion
from tests.backends.clusters import eventually
from tests.backends.kubernetes.clusters import A
from tests.backends.kubernetes.stand_in import a_stand_in

HERE = "/api/v1/namespaces/default/pods"
TWO = tuple(NodeSpec(name=f"node-{index}", resources={A: 1}) for index in range(2))


@contextmanager
def two_nodes(kubeconfig: Path, folder: Path) -> Iterator[KubernetesPrimitives]:
    """Names of the owner `app` on two nodes; all of them are gone afterwards."""
    kubelets = LocalKubelets(str(kubeconfig), folder, TWO, runs_pods=False)
    kubelets.start()
    try:
        with KubernetesPrimitives("app", kubeconfig=str(kubeconfig)) as app:
            yield app
    finally:
        kubelets.stop()


def check_names(app: KubernetesPrimitives) -> None:
    """Set, resize, refuse, and write all or none."""
    app.set_resource(Write("app/x", "node-0", 2), Write("app/y", "node-1", 1))
    state = app.get_cluster_state()
    assert (state["node-0"]["app/x"].capacity, state["node-1"]["app/y"].free) == (2, 1)
    assert state["node-0"]["node/cpu"].capacity == 16
    app.set_resource(Write("app/x", "node-0", 5))
    assert app.get_cluster_state()["node-0"]["app/x"].capacity == 5
    for write, error in (
        (Write("other/x", "node-0", 1), Conflict),
        (Write("app/X", "node-0", 1), InvalidResource),
        (Write("app/x", "nowhere", 1), NotFound),
        (Write("app/x", "node-0", 9, expect=ABSENT), StaleVersion),
    ):
        with pytest.raises(error):
            app.set_resource(Write("app/z", "node-1", 1), write)
    assert "app/z" not in app.get_cluster_state()["node-1"]
    app.set_resource(Write("app/x", "node-0", 0))
    assert "app/x" not in app.get_cluster_state()["node-0"]
    app.close()
    assert "app/y" not in app.get_cluster_state()["node-1"]


def check_placement(app: KubernetesPrimitives) -> None:
    """Two pods that keep apart are bound to two nodes by the cluster's own scheduler; a third waits."""
    apart = AntiAffinity("app/apart")
    apart.apply(app)
    (requirement,) = app.requirements(apart, needs={"node/cpu": 1})
    for name in ("one", "two", "three"):
        resources = {"requests": requirement, "limits": requirement}
        spec = {"containers": [{"name": "own", "image": "x", "resources": resources}]}
        app._api.create(HERE, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    nodes = lambda: sorted(pod_of(app._api.get(f"{HERE}/{name}")).node for name in ("one", "two", "three"))  # noqa: E731
    eventually(lambda: nodes() == ["", "node-0", "node-1"])
    assert app.get_cluster_state()["node-0"]["app/apart"].free == 0


@pytest.mark.parametrize("check", [check_names, check_placement])
def test_on_what_plays_the_api_server(check: object, tmp_path: Path) -> None:
    with a_stand_in(tmp_path) as kubeconfig, two_nodes(kubeconfig, tmp_path / "pods") as app:
        check(app)  # type: ignore[operator]


@pytest.mark.kubernetes
@pytest.mark.parametrize("check", [check_names, check_placement])
def test_on_a_real_control_plane(check: object, plane: ControlPlane, tmp_path: Path) -> None:
    with two_nodes(plane.kubeconfig, tmp_path / "pods") as app:
        check(app)  # type: ignore[operator]


def test_what_a_pod_cannot_require_is_refused(tmp_path: Path) -> None:
    with a_stand_in(tmp_path) as kubeconfig:
        app = KubernetesPrimitives("app", kubeconfig=str(kubeconfig))
        with pytest.raises(InvalidRequest, match="cpu, memory can be asked"):
            app.requirements(AntiAffinity("app/apart"), needs={"node/example-com-a": 1})


def test_without_a_cluster_it_says_what_to_set(tmp_path: Path) -> None:
    for over in ({"kubeconfig": str(tmp_path / "none")}, {"kubeconfig": str(_config(tmp_path)), "context": "imagined"}):
        with pytest.raises(InvalidRequest, match=r"no Kubernetes cluster to run on: .*; set kubeconfig and context"):
            KubernetesPrimitives("app", **over)


def _config(folder: Path) -> Path:
    path = folder / "config"
    path.write_text('{"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}')
    return path
