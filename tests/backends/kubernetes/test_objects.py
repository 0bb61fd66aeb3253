"""What is created and read: pods and sets of nodes against the schemas of three releases, types, names, rules.

`schemas.json` has the definitions of a pod and a node, and of all that they consist of, from the OpenAPI description of
Kubernetes 1.35 to 1.37, without their prose. They refuse fields that the release does not have. The whole collection of
all kinds would be two hundred times as large.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.backends.kubernetes.api import _refusal
from gavel.backends.kubernetes.gates import COSCHEDULING, NATIVE, Holding, pod_group
from gavel.backends.kubernetes.node import in_pod
from gavel.backends.kubernetes.nodes import node_of, taken_of
from gavel.backends.kubernetes.pods import gang_name, pod_of, pods_for
from gavel.backends.kubernetes.protocol import GATE, KubernetesSettings
from gavel.backends.kubernetes.quantities import number_of
from gavel.backends.kubernetes.resources import (
    check_extended,
    ephemeral_name,
    extended_name,
    names_of_gang,
    set_of_node,
    wanted_on_nodes,
)
from gavel.backends.nodes.devices import environment_of
from gavel.backends.nodes.protocol import Group, ShardLaunch, ShardWanted, Slot
from gavel.backends.nodes.relay import AgentStart
from gavel.config_sections import KubernetesSection
from gavel.errors import InvalidResource
from gavel.ports import LaunchGang

SCHEMAS = json.loads(Path(__file__).with_name("schemas.json").read_text())
GROUP = Group(
    name="gavel/j1/3",
    bundles=(("n0", "nvidia.com/gpu", 4), ("n1", "nvidia.com/gpu", 4), ("n2", "nvidia.com/gpu", 1)),
    tier="gold",
    cpu_cores=2,
    memory_bytes=1 << 30,
    image="pytorch/pytorch:2",
)


def settings_of(**over: Any) -> KubernetesSettings:
    """Settings with the accelerators that operators get without saying any."""
    return KubernetesSettings(**{"resources": tuple(KubernetesSection().resources), **over})


DOMAIN = settings_of(namespace="training").domain
FULL = settings_of(
    image="registry/gavel:1",
    tolerations=({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},),
    node_selector={"pool": "gpu"},
    pull_secrets=("registry",),
    volumes=({"name": "data", "nfs": {"server": "files", "path": "/data"}},),
    mounts=({"name": "data", "mountPath": "/data", "readOnly": True},),
)
READY = [{"type": "Ready", "status": "True"}]


def node(resources: dict[str, str], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n0", "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": resources, "capacity": resources, "conditions": READY},
    }


def types(resources: dict[str, str], labels: dict[str, str]) -> set[tuple[str, int]]:
    slots = node_of(node(resources, labels), settings_of()).listed.slots
    return {(slot.accelerator_type, slot.memory_bytes) for slot in slots}


@pytest.mark.parametrize("release", SCHEMAS)
@pytest.mark.parametrize("settings", [settings_of(), FULL], ids=["default", "full"])
def test_every_object_is_one_that_the_release_has(release: str, settings: KubernetesSettings) -> None:
    for kind, made in (
        *(
            ("Pod", pod)
            for pod in pods_for(
                GROUP, AgentStart(where="/gavel/allocations/j1.3.ab"), names_of_gang(GROUP, DOMAIN), settings
            )
        ),
        ("Node", set_of_node("n0", wanted_on_nodes([GROUP], DOMAIN)["n0"])),
    ):
        schema = {**SCHEMAS[release], "$ref": f"#/$defs/io.k8s.api.core.v1.{kind}"}
        jsonschema.Draft7Validator(schema).validate(made)


HELD = Holding(has_gates=True, kinds=(COSCHEDULING,))
NATIVELY = Holding(has_gates=True, kinds=(NATIVE,))


@pytest.mark.parametrize("release", SCHEMAS)
def test_pods_that_are_held_back_and_their_group_are_ones_that_the_release_has(release: str) -> None:
    """Gates and labels every release has; the kind PodGroup of Kubernetes' own, and what names it, the last one has."""
    has_kind = f"io.k8s.api.scheduling.{NATIVE.version}.PodGroup" in SCHEMAS[release]["$defs"]
    assert has_kind == (release == max(SCHEMAS))
    start = AgentStart(where="/gavel/allocations/j1.3.ab")
    bare = pods_for(GROUP, start, names_of_gang(GROUP, DOMAIN), FULL)
    for holding in (HELD, NATIVELY) if has_kind else (HELD,):
        pods = holding.held(bare, gang_name(start.allocation))
        assert all(pod["spec"]["schedulingGates"] == [{"name": GATE}] for pod in pods)
        shown = [pod_of({**pod, "metadata": {**pod["metadata"], "uid": "u"}}) for pod in pods]
        groups = [("scheduling.v1beta1.PodGroup", pod_group(NATIVE, "g", shown))] if holding is NATIVELY else []
        for kind, made in (*(("core.v1.Pod", pod) for pod in pods), *groups):
            schema = {**SCHEMAS[release], "$ref": f"#/$defs/io.k8s.api.{kind}"}
            jsonschema.Draft7Validator(schema).validate(made)


def test_a_field_that_no_release_has_is_refused() -> None:
    for definitions in SCHEMAS.values():
        schema = {**definitions, "$ref": "#/$defs/io.k8s.api.core.v1.Pod"}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft7Validator(schema).validate({"spec": {"containers": [{"name": "a", "imagined": 1}]}})


def test_pods_that_need_different_things_have_different_names_so_that_each_finds_its_node() -> None:
    names = names_of_gang(GROUP, DOMAIN)
    assert names == {
        "n0": "training.gang.gavel.internal/j1.3",
        "n1": "training.gang.gavel.internal/j1.3",
        "n2": "training.gang.gavel.internal/j1.3.1",
    }
    pods = pods_for(GROUP, AgentStart(where="/gavel/allocations/j1.3.ab"), names, FULL)
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    assert [each["nvidia.com/gpu"] for each in limits] == ["4", "4", "1"]
    assert [each["cpu"] for each in limits] == ["8", "8", "2"]
    assert [pod["spec"]["initContainers"][0]["image"] for pod in pods] == ["registry/gavel:1"] * 3
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"pytorch/pytorch:2"}


def test_a_job_without_an_image_needs_no_runtime_brought() -> None:
    plain = Group(name="gavel/j1/1", bundles=(("n0", "nvidia.com/gpu", 1),))
    (pod,) = pods_for(plain, AgentStart(where="/gavel/allocations/j1.1.ab"), names_of_gang(plain, DOMAIN), FULL)
    assert (pod["spec"]["initContainers"], pod["spec"]["containers"][0]["image"]) == ([], "registry/gavel:1")


@pytest.mark.parametrize(
    ("resources", "labels", "expected"),
    [
        ({"nvidia.com/gpu": "2"}, {}, {("nvidia-gpu", 0)}),
        (
            {"nvidia.com/gpu": "8"},
            {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"},
            {("nvidia-a100-sxm4-80gb", 81920 << 20)},
        ),
        (
            {"nvidia.com/mig-1g.5gb": "7"},
            {"nvidia.com/gpu.product": "A100", "nvidia.com/mig-1g.5gb.memory": "4864"},
            {("a100-mig-1g-5gb", 4864 << 20)},
        ),
        (
            {"amd.com/gpu": "1"},
            {"amd.com/gpu.product-name": "Instinct_MI300X", "amd.com/gpu.vram": "192G"},
            {("amd-instinct-mi300x", 192 << 30)},
        ),
        ({"google.com/tpu": "4"}, {"cloud.google.com/gke-tpu-accelerator": "tpu-v5e"}, {("tpu-v5e", 0)}),
        (
            {"nvidia.com/gpu": "1"},
            {"gavel.internal/type": "mine", "gavel.internal/memory-gb": "24"},
            {("mine", 24 * 10**9)},
        ),
        ({"cpu": "64", "example.com/dongle": "3"}, {}, set()),
    ],
)
def test_types_and_memory_come_from_resources_and_labels(
    resources: dict[str, str], labels: dict[str, str], expected: set[tuple[str, int]]
) -> None:
    assert types(resources, labels) == expected


@pytest.mark.parametrize(
    ("spec", "settings", "problem"),
    [
        ({"unschedulable": True}, {}, "it is cordoned in Kubernetes"),
        (
            {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
            {},
            "its taint a=b:NoSchedule keeps pods away",
        ),
        ({"taints": [{"key": "a", "value": "b", "effect": "PreferNoSchedule"}]}, {}, ""),
        ({"taints": [{"key": "a", "effect": "NoExecute"}]}, {"tolerations": ({"operator": "Exists"},)}, ""),
        (
            {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
            {"tolerations": ({"key": "a", "value": "b"},)},
            "",
        ),
        (
            {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
            {"tolerations": ({"key": "a", "value": "c"},)},
            "its taint a=b:NoSchedule keeps pods away",
        ),
    ],
)
def test_cordons_and_taints_keep_gangs_away(spec: dict[str, Any], settings: dict[str, Any], problem: str) -> None:
    listed = node_of(node({"nvidia.com/gpu": "1"}, **spec), settings_of(**settings)).listed
    assert listed.problem.split(":  ")[0].startswith(problem)
    assert bool(listed.problem) == bool(problem)


def test_a_node_that_the_selector_of_our_pods_excludes_offers_nothing() -> None:
    settings = settings_of(node_selector={"pool": "gpu"})
    offered = [
        node_of(node({"nvidia.com/gpu": "1"}, {"pool": pool}), settings).listed.slots for pool in ("gpu", "other")
    ]
    assert [len(slots) for slots in offered] == [1, 0]


def test_what_a_pod_holds_is_its_containers_or_what_runs_before_them() -> None:
    def container(**limits: str) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": limits["gpu"]}}}

    shown = {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {
            "nodeName": "n0",
            "containers": [container(gpu="1"), container(gpu="2")],
            "initContainers": [container(gpu="4")],
        },
        "status": {"phase": "Running"},
    }
    assert taken_of([pod_of(shown)], ["nvidia.com/gpu"]) == {"n0": {"nvidia.com/gpu": 4}}
    ended = {**shown, "status": {"phase": "Succeeded"}}
    assert taken_of([pod_of(ended)], ["nvidia.com/gpu"]) == {}


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "a/b/c",
        "kubernetes.io/x",
        "x.kubernetes.io/x",
        "requests.x/y",
        f"a.b/{'x' * 64}",
        "a.b/-x",
        "A.b/x",
        "/x",
    ],
)
def test_names_that_a_node_takes_and_a_pod_cannot_ask_for_are_refused(name: str) -> None:
    with pytest.raises(InvalidResource):
        check_extended(name)


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True), st.from_regex(r"[a-z]{1,63}", fullmatch=True)
)
def test_an_ephemeral_name_comes_back_from_its_extended_resource(owner: str, name: str) -> None:
    assert ephemeral_name(extended_name(f"{owner}/{name}")) == f"{owner}/{name}"


@given(st.text(st.characters(codec="ascii"), min_size=1, max_size=200).filter(lambda text: "/" not in text))
def test_any_job_has_a_name_that_pods_can_ask_for(job_id: str) -> None:
    group = Group(name=f"gavel/{job_id}/12", bundles=(("n0", "r", 1), ("n1", "r", 2)))
    assert len(set(names_of_gang(group, DOMAIN).values())) == 2


@pytest.mark.parametrize(
    ("text", "number"),
    [("100m", 0.1), ("4", 4), ("16Gi", 1 << 34), ("1e3", 1000), ("2k", 2000), ("", 0), ("-1", 0), ("1.2.3", 0)],
)
def test_quantities(text: str, number: float) -> None:
    assert number_of(text) == pytest.approx(number)


def test_a_right_that_is_missing_is_named_with_the_rule_that_grants_it() -> None:
    refusal = 'User "gavel" cannot patch resource "nodes/status" in API group "" at the cluster scope'
    message = f'nodes "n0" is forbidden: {refusal}'
    problem = _refusal(403, json.dumps({"message": message, "reason": "Forbidden"}).encode())
    assert str(problem).endswith(
        'grant it by a ClusterRole with the rule apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]'
    )


def launched(image: str = "") -> ShardWanted:
    """The order to start two ranks on GPUs 5 and 2 of a node."""
    slots = tuple(Slot(accelerator_type="a100", resource="nvidia.com/gpu", index=index) for index in (5, 2))
    instruction = LaunchGang(
        job_id="j1",
        generation=1,
        user="ann",
        argv=("python", "train.py"),
        env={},
        accelerator_type="a100",
        worker_ids=("a100-5", "a100-2"),
        resource="gavel/gang-j1-1",
        lease_expires_at_s=60.0,
        start_step=0,
        total_steps=1,
        checkpoint=None,
        image=image,
    )
    launch = ShardLaunch(
        instruction=instruction,
        ranks=(0, 1),
        slots=slots,
        node_of_rank=("n0", "n0"),
        environment={},
        lease_grace_s=1.0,
        log_bytes=1,
        checkpoints="/shared",
    )
    return ShardWanted(key=launch.key, lease_node_boottime_s=1.0, launch=launch)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("MIG-1,MIG-2", ["MIG-1", "MIG-2"]), ("all", ["0", "1"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])],
)
def test_ranks_use_the_devices_that_the_pod_was_given(given: str, expected: list[str]) -> None:
    (wanted,) = in_pod({"NVIDIA_VISIBLE_DEVICES": given}).placed((launched(),))
    assert wanted.launch is not None
    assert [environment_of(slot)["CUDA_VISIBLE_DEVICES"] for slot in wanted.launch.slots] == expected


def test_a_job_with_an_image_runs_by_the_interpreter_of_its_pod(tmp_path: Path) -> None:
    (tmp_path / "python").touch(0o755)
    (wanted,) = in_pod({"PATH": str(tmp_path)}).placed((launched(image="pytorch"),))
    assert wanted.launch is not None
    assert (wanted.launch.instruction.image, wanted.launch.instruction.python) == ("", str(tmp_path / "python"))
