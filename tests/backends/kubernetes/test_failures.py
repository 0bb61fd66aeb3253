"""Failures on a real control plane of Kubernetes: its server, nodes, other people's pods, and the service itself."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, find, gang, is_in, spread_gang, stop
from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import JSON_PATCH, STRATEGIC, NodeSpec
from gavel.errors import BackendUnavailable
from gavel.ports import CordonNode, Instruction, LaunchGang
from gavel.types import GangOutcome, GangState, Observation
from tests.backends.clusters import eventually, tolerant
from tests.backends.kubernetes.clusters import A, KubernetesHarness, a_service_on, kubernetes_settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

TWO = tuple(NodeSpec(name=f"node-{index}", resources={A: 1}) for index in range(2))
PODS_HERE = "/api/v1/namespaces/default/pods"


@pytest.fixture
def two_nodes(plane: ControlPlane, tmp_path: Path) -> Iterator[KubernetesHarness]:
    with a_service_on(plane.kubeconfig, tmp_path, TWO, bind_limit_s=3.0) as made:
        yield made


def lasting(instruction: Instruction) -> Instruction:
    """With a lease that no test outlasts."""
    if isinstance(instruction, LaunchGang):
        return replace(instruction, lease_expires_at_s=instruction.lease_expires_at_s + 600)
    return instruction


def foreign(harness: KubernetesHarness, name: str, requests: dict[str, str], node: str = "") -> None:
    """Another user's pod."""
    resources = {"requests": requests, "limits": requests}
    container = {"name": "own", "image": "x", "command": ["sleep", "600"], "resources": resources}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node} if node else {}}
    harness.api.create(PODS_HERE, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def workers(seen: Observation) -> list[str]:
    return [worker.id for worker in seen.cluster.workers]


def extended(harness: KubernetesHarness, node: str, domain: str = "default.gang.gavel.internal") -> dict[str, str]:
    capacity = harness.node(node)["status"]["capacity"]
    return {name: amount for name, amount in capacity.items() if name.startswith(domain)}


def test_a_gang_is_pods_that_the_clusters_own_scheduler_binds(two_nodes: KubernetesHarness) -> None:
    """1 one pod a node, pinned by the gang's name, requiring the accelerator, 2 which goes with it, and its name."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0, 1)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    pods = two_nodes.pods()
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["node-0", "node-1"]
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {A: "1", "default.gang.gavel.internal/j1.1": "1"}
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["automountServiceAccountToken"] is False
    assert extended(two_nodes, "node-0") == {"default.gang.gavel.internal/j1.1": "1"}
    two_nodes.backend.execute(stop("j1"))
    assert exit_of(two_nodes, "j1").outcome is GangOutcome.PREEMPTED
    eventually(lambda: bool(two_nodes.backend.observe()) and not two_nodes.pods() and not extended(two_nodes, "node-0"))


def test_foreign_resources_of_a_node_stay_and_a_node_that_comes_back_empty_is_filled(
    two_nodes: KubernetesHarness,
) -> None:
    """1 another manager's resource, 2 ours come and go beside it, 3 the node is made again: ours are there again."""
    path = "/api/v1/nodes/node-0/status"
    operation = {"op": "add", "path": "/status/capacity/other.example.com~1dongle", "value": "4"}
    two_nodes.api.patch(path, [operation], JSON_PATCH)
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    assert extended(two_nodes, "node-0", "other.") == {"other.example.com/dongle": "4"}
    assert extended(two_nodes, "node-0")
    empty = {"op": "remove", "path": "/status/capacity/default.gang.gavel.internal~1j1.1"}
    two_nodes.api.patch(path, [empty], JSON_PATCH)
    eventually(lambda: bool(two_nodes.backend.observe()) and bool(extended(two_nodes, "node-0")))
    assert is_in(GangState.RUNNING, "j1")(two_nodes.backend.observe())
    assert extended(two_nodes, "node-0", "other.") == {"other.example.com/dongle": "4"}


def test_what_other_pods_use_is_not_given_to_gangs(harness: KubernetesHarness) -> None:
    """1 a foreign pod takes one of two accelerators, 2 one worker goes, 3 the other works, 4 it comes back."""
    foreign(harness, "foreign", {A: "1"})
    harness.wait_until(lambda seen: workers(seen) == ["a-0", "b-0"])
    harness.backend.execute([lasting(each) for each in gang(harness, "j1", "a-0")])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.api.delete(f"{PODS_HERE}/foreign", grace_s=0)
    seen = harness.wait_until(lambda seen: workers(seen) == ["a-0", "a-1", "b-0"])
    assert is_in(GangState.RUNNING, "j1")(seen)


def test_a_gang_that_does_not_bind_is_taken_down_whole_and_says_why(two_nodes: KubernetesHarness) -> None:
    """1 a foreign pod has the memory of one node, 2 no pod of the gang stays, the reason is Kubernetes' own."""
    foreign(two_nodes, "hog", {"memory": "60Gi"}, node="node-1")
    eventually(lambda: any(pod["spec"].get("nodeName") == "node-1" for pod in two_nodes.pods()))
    *resources, launch = spread_gang(two_nodes, "j1", 0, 1)
    assert isinstance(launch, LaunchGang)
    two_nodes.backend.execute([*resources, lasting(replace(launch, memory_bytes=8 << 30))])
    seen = two_nodes.wait_until(lambda seen: "were not bound" in getattr(find(seen, "j1"), "waiting_for", ""))
    assert "Insufficient memory" in getattr(find(seen, "j1"), "waiting_for", "")
    eventually(lambda: bool(two_nodes.backend.observe()) and len(two_nodes.pods()) == 1)
    assert {node.problem[:24] for node in two_nodes.backend.observe().cluster.nodes} == {"its pods were not bound "}


def test_cordons_taints_and_lost_kubelets_are_states_of_nodes(two_nodes: KubernetesHarness) -> None:
    """1 cordoned, 2 uncordoned, 3 tainted: each is said, and no worker of the node is planned with."""

    def problem(seen: Observation) -> str:
        return next(node.problem for node in seen.cluster.nodes if node.name == "node-0")

    path = "/api/v1/nodes/node-0"
    two_nodes.api.patch(path, {"spec": {"unschedulable": True}}, STRATEGIC)
    seen = two_nodes.wait_until(lambda seen: problem(seen) == "it is cordoned in Kubernetes")
    assert workers(seen) == ["a-1"]
    two_nodes.api.patch(path, {"spec": {"unschedulable": None}}, STRATEGIC)
    two_nodes.wait_until(lambda seen: workers(seen) == ["a-0", "a-1"])
    taint = {"key": "dedicated", "value": "others", "effect": "NoSchedule"}
    two_nodes.api.patch(path, {"spec": {"taints": [taint]}}, STRATEGIC)
    two_nodes.wait_until(lambda seen: problem(seen).startswith("its taint dedicated=others:NoSchedule keeps pods away"))


def test_a_device_plugin_that_comes_late_brings_its_workers(two_nodes: KubernetesHarness) -> None:
    """1 a node gets a second accelerator while a gang runs there, 2 which goes on, 3 and the new one is used."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    two = {"status": {"capacity": {A: "2"}, "allocatable": {A: "2"}}}
    two_nodes.api.patch("/api/v1/nodes/node-0/status", two, STRATEGIC)
    seen = two_nodes.wait_until(lambda seen: len(workers(seen)) == 3)
    assert is_in(GangState.RUNNING, "j1")(seen)
    (new,) = {*workers(seen)} - {"a-0", "a-1"}
    two_nodes.backend.execute([lasting(each) for each in gang(two_nodes, "j2", new)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1", "j2"), 120)


def test_an_evicted_pod_is_a_gang_that_is_lost_and_says_so(two_nodes: KubernetesHarness) -> None:
    """1 somebody evicts one pod of two, 2 the gang ends whole, 3 nothing of it is left."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0, 1)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    name = two_nodes.pods()[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    two_nodes.api.create(f"{PODS_HERE}/{name}/eviction", eviction)
    end = exit_of(two_nodes, "j1")
    assert end.outcome in (GangOutcome.LOST, GangOutcome.PREEMPTED)
    eventually(lambda: bool(two_nodes.backend.observe()) and not two_nodes.all_processes())


def test_a_restarted_api_server_costs_no_gang(tmp_path: Path) -> None:
    """1 it is killed under a gang, 2 the operator is told, the gang goes on, 3 it is back, and gangs start."""
    with ControlPlane() as own, a_service_on(own.kubeconfig, tmp_path, TWO) as two_nodes:
        two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
        two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
        before = two_nodes.all_processes()
        own.kill("kube-apiserver")
        eventually(tolerant(two_nodes, lambda _: any("does not answer" in each for each in two_nodes.backend.notes())))
        assert is_in(GangState.RUNNING, "j1")(two_nodes.backend.observe())
        own.start_api_server()
        eventually(tolerant(two_nodes, lambda _: not two_nodes.backend.notes()), 60)
        assert two_nodes.all_processes() == before
        two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j2", 1)])
        two_nodes.wait_until(is_in(GangState.RUNNING, "j2"), 120)


def test_no_list_call_after_the_first(two_nodes: KubernetesHarness) -> None:
    """A gang comes and goes: nodes and pods are watched, and one look costs no call."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    before = dict(two_nodes.backend.calls)
    for _ in range(20):
        two_nodes.backend.observe()
    assert dict(two_nodes.backend.calls) == before
    assert before["list"] == 2


def test_an_image_that_cannot_be_pulled_is_told_to_its_user_and_blames_no_node(two_nodes: KubernetesHarness) -> None:
    *resources, launch = spread_gang(two_nodes, "j1", 0)
    assert isinstance(launch, LaunchGang)
    two_nodes.backend.execute([*resources, lasting(replace(launch, image="registry.example/missing:1"))])
    seen = two_nodes.wait_until(lambda seen: "ErrImagePull" in getattr(find(seen, "j1"), "waiting_for", ""))
    assert not any(node.problem for node in seen.cluster.nodes)
    eventually(lambda: bool(two_nodes.backend.observe()) and not two_nodes.pods())


def test_a_volume_that_is_not_there_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    missing = {"persistentVolumeClaim": {"claimName": "imagined"}}
    with a_service_on(plane.kubeconfig, tmp_path, TWO, bind_limit_s=3.0, node_volume=missing) as harness:
        harness.backend.execute([lasting(each) for each in spread_gang(harness, "j1", 0)])
        seen = harness.wait_until(lambda seen: "were not bound" in getattr(find(seen, "j1"), "waiting_for", ""))
        assert 'persistentvolumeclaim "imagined" not found' in getattr(find(seen, "j1"), "waiting_for", "")


def test_rights_that_are_missing_are_named_with_the_rule_that_grants_them(
    plane: ControlPlane, tmp_path: Path, two_nodes: KubernetesHarness
) -> None:
    """1 a user without rights, 2 the operator reads which rule to grant, 3 the service goes on asking."""
    settings = kubernetes_settings(tmp_path / "other", plane.kubeconfig, context="nobody")
    with closing(two_nodes.made(kubernetes=settings, state_dir=tmp_path / "other" / "state")) as other:
        rule = 'grant it by a ClusterRole with the rule apiGroups: [""], resources: ["nodes"], verbs: ["list"]'

        def is_told() -> bool:
            with pytest.raises(BackendUnavailable) as problem:
                other.observe()
            return rule in str(problem.value)

        eventually(is_told)


def test_a_quota_that_is_exceeded_is_named(two_nodes: KubernetesHarness) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    path = "/api/v1/namespaces/default/resourcequotas"
    two_nodes.api.create(path, quota)
    counted = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}  # as the controller of quotas does
    two_nodes.api.patch(f"{path}/none/status", counted, STRATEGIC)
    try:
        two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
        seen = two_nodes.wait_until(lambda seen: "refuses a pod" in getattr(find(seen, "j1"), "waiting_for", ""))
        assert "quota" in getattr(find(seen, "j1"), "waiting_for", "")
    finally:
        two_nodes.api.delete(f"{path}/none")


def test_a_node_that_an_operator_closes_is_cordoned_for_everybody(two_nodes: KubernetesHarness) -> None:
    """1 cordoned: a foreign pod waits, what runs goes on, it is no problem, 2 let go: the pod is bound."""
    two_nodes.backend.execute([lasting(each) for each in spread_gang(two_nodes, "j1", 0)])
    two_nodes.wait_until(is_in(GangState.RUNNING, "j1"))
    two_nodes.backend.execute([CordonNode(node="node-1", is_cordoned=True)])
    seen = two_nodes.wait_until(lambda seen: seen.cordons["node-1"])
    assert seen.cordons == {"node-0": False, "node-1": True} and len(seen.cluster.workers) == 2
    assert two_nodes.node("node-1")["spec"]["unschedulable"] is True
    foreign(two_nodes, "later", {A: "1"})
    eventually(lambda: "unschedulable" in str(two_nodes.api.get(f"{PODS_HERE}/later")["status"].get("conditions")))
    two_nodes.backend.execute([CordonNode(node="node-1", is_cordoned=False)])
    two_nodes.wait_until(lambda seen: not seen.cordons["node-1"])
    eventually(lambda: two_nodes.api.get(f"{PODS_HERE}/later")["spec"].get("nodeName") == "node-1", 60)
    assert is_in(GangState.RUNNING, "j1")(two_nodes.backend.observe())


def test_a_cordon_of_other_people_stays_theirs(two_nodes: KubernetesHarness) -> None:
    two_nodes.api.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": True}}, STRATEGIC)
    seen = two_nodes.wait_until(lambda seen: len(seen.cluster.workers) == 1)
    assert seen.cordons == {"node-0": False, "node-1": False}
    two_nodes.backend.execute([CordonNode(node=name, is_cordoned=True) for name in ("node-0", "node-1")])
    seen = two_nodes.wait_until(lambda seen: seen.cordons["node-0"])
    assert not seen.cordons["node-1"]
    problems = {node.name: node.problem for node in seen.cluster.nodes}
    assert problems == {"node-0": "", "node-1": "it is cordoned in Kubernetes"}
