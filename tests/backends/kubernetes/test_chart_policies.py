"""The chart's admission policies, evaluated: who may put which names on a node, and who may ask for them.

Their expressions are evaluated by another implementation of the language than the API server's; the shapes of requests
are those that the backend and kubelets send.
"""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.cordons import CORDONED_BY
from gavel.backends.kubernetes.kubelets import NodeSpec
from gavel.backends.kubernetes.pods import pods_for
from gavel.backends.kubernetes.resources import names_of_gang
from gavel.backends.nodes.relay import AgentStart
from tests.backends.kubernetes.charts import ACCOUNT, NAMESPACE, rendered, rules
from tests.backends.kubernetes.test_objects import FULL, GROUP, SCHEMAS, settings_of

KUBELET, SOMEBODY = "system:node:n0", "ann"
GANG = f"{NAMESPACE}.gang.gavel.internal/j1.1"
NODE_FIELDS = {"capacity", "allocatable"}


def celpy() -> Any:
    return pytest.importorskip("celpy", reason="needs an evaluator of the policies' language: make test-chart")


def evaluated(expression: str, given: Mapping[str, Any]) -> Any:
    """The value of an expression; raises if it fails."""
    library = celpy()
    environment = library.Environment()
    context = {name: value if name == "variables" else library.json_to_cel(value) for name, value in given.items()}
    return environment.program(environment.compile(expression)).evaluate(context)


def allows(user: str, kind: str, after: Object, before: Object | None = None, *, part: str = "/status") -> bool:
    """Whether all policies admit a request of a user that creates an object, or changes a part of it."""
    resource = {"Node": "nodes" if before is None else f"nodes{part}", "Pod": "pods"}[kind]
    operation = "CREATE" if before is None else "UPDATE"
    request = {"operation": operation, "userInfo": {"username": user}}
    given = {"object": after, "oldObject": before, "request": request}
    objects = rendered({})
    bound = {each["spec"]["policyName"] for each in objects if each["kind"] == "ValidatingAdmissionPolicyBinding"}
    policies = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    assert bound == {each["metadata"]["name"] for each in policies} and len(policies) == 4
    return all(_admits(each["spec"], resource, operation, given) for each in policies)


def _admits(policy: Object, resource: str, operation: str, given: Mapping[str, Any]) -> bool:
    rules = policy["matchConstraints"]["resourceRules"]
    if not any(resource in rule["resources"] and operation in rule["operations"] for rule in rules):
        return True
    if not all(evaluated(each["expression"], given) for each in policy["matchConditions"]):
        return True
    variables = celpy().celtypes.MapType()
    for each in policy["variables"]:
        name = celpy().celtypes.StringType(each["name"])
        variables[name] = evaluated(each["expression"], {**given, "variables": variables})
    context = {**given, "variables": variables}
    return all(evaluated(each["expression"], context) for each in policy["validations"])


def node(**amounts: str) -> Object:
    """A node with these extended resources, as the API server has it."""
    made = copy.deepcopy(dict(NodeSpec(name="n0", resources={"nvidia.com/gpu": 8}, labels={"pool": "gpu"}).body()))
    for part in NODE_FIELDS:
        made["status"][part] = {**made["status"][part], **amounts}
    return made


def changed(before: Object, part: str, **fields: Any) -> Object:
    return {**before, part: {**before[part], **fields}}


def test_the_service_sets_and_takes_away_the_names_of_its_gangs() -> None:
    assert allows(ACCOUNT, "Node", node(**{GANG: "1"}), node())
    assert allows(ACCOUNT, "Node", node(), node(**{GANG: "1"}))
    assert allows(ACCOUNT, "Node", node(**{GANG: "1", "other.example/x": "2"}), node(**{"other.example/x": "2"}))


@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "speech.gang.gavel.internal/j1.1"])
def test_the_service_changes_no_other_resource(name: str) -> None:
    assert not allows(ACCOUNT, "Node", node(**{name: "1"}), node(**{name: "2"}))
    for before, after in ((node(), node(**{name: "9"})), (node(**{name: "9"}), node())):
        assert not allows(ACCOUNT, "Node", after, before)


def test_the_service_changes_nothing_else_of_a_node() -> None:
    before = node()
    assert not allows(ACCOUNT, "Node", changed(before, "status", conditions=[]), before)
    assert not allows(ACCOUNT, "Node", changed(before, "status", images=[{"names": ["x"]}]), before)
    assert not allows(ACCOUNT, "Node", changed(before, "metadata", labels={"pool": "other"}), before)
    assert not allows(ACCOUNT, "Node", changed(before, "metadata", annotations={"a": "b"}), before)
    assert not allows(ACCOUNT, "Node", before, changed(before, "metadata", annotations={"a": "b"}))
    assert allows(ACCOUNT, "Node", changed(before, "metadata", resourceVersion="8", managedFields=[]), before)


@pytest.mark.parametrize("release", SCHEMAS)
@pytest.mark.parametrize(
    ("policy", "part", "own"), [("service", "status", NODE_FIELDS), ("cordons", "spec", {"unschedulable"})]
)
def test_no_field_of_a_node_is_forgotten(release: str, policy: str, part: str, own: set[str]) -> None:
    fields = SCHEMAS[release]["$defs"][f"io.k8s.api.core.v1.Node{part.title()}"]["properties"].keys()
    (made,) = (
        each
        for each in rendered({})
        if each["metadata"]["name"].endswith(f"-{policy}") and "matchConditions" in each["spec"]
    )
    text = " ".join(each["expression"] for each in made["spec"]["validations"])
    assert all(f"variables.{part}.{name} ==" in text for name in fields - own)


def test_the_service_cordons_a_node_and_changes_nothing_else_of_it() -> None:
    before = {**node(), "spec": {"podCIDR": "10.0.0.0/24"}}
    closed = changed(before, "spec", unschedulable=True)
    closed = changed(closed, "metadata", annotations={CORDONED_BY: NAMESPACE})
    assert allows(ACCOUNT, "Node", closed, before, part="")
    assert allows(ACCOUNT, "Node", before, closed, part="")
    assert not allows(ACCOUNT, "Node", changed(before, "metadata", annotations={"a": "b"}), before, part="")
    assert not allows(ACCOUNT, "Node", before, changed(before, "metadata", annotations={"a": "b"}), part="")
    assert not allows(ACCOUNT, "Node", changed(before, "metadata", labels={"pool": "other"}), before, part="")
    assert not allows(ACCOUNT, "Node", changed(before, "spec", taints=[{"key": "a"}]), before, part="")
    assert not allows(ACCOUNT, "Node", changed(before, "spec", podCIDR="10.0.1.0/24"), before, part="")
    assert allows(SOMEBODY, "Node", changed(before, "metadata", labels={"pool": "other"}), before, part="")


def test_a_service_that_cordons_nothing_has_no_right_to_nodes() -> None:
    objects = rendered({"settings": {"kubernetes": {"cordons": False}}})
    assert len([each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]) == 3
    assert not any("nodes" in rule["resources"] and "patch" in rule["verbs"] for _, rule in rules(objects))


@pytest.mark.parametrize("user", [KUBELET, SOMEBODY])
def test_nobody_else_sets_a_name_of_gangs(user: str) -> None:
    assert not allows(user, "Node", node(**{GANG: "1"}), node())
    assert not allows(user, "Node", node(**{GANG: "2"}), node(**{GANG: "1"}))
    assert not allows(user, "Node", node(**{GANG: "1"}))


@pytest.mark.parametrize("user", [KUBELET, SOMEBODY])
def test_others_change_a_node_that_has_such_names_as_ever(user: str) -> None:
    """Heartbeats pass, kubelets may set them to zero, and operators may take them away."""
    before = node(**{GANG: "1"})
    assert allows(user, "Node", changed(before, "status", conditions=[]), before)
    assert allows(user, "Node", node(**{GANG: "0"}), before)
    assert allows(user, "Node", node(), before)
    assert allows(user, "Node", node(cpu="9", **{"other.example/x": "2"}), node())
    assert allows(user, "Node", node())
    assert allows(user, "Node", {"metadata": {"name": "n0"}}, {"metadata": {"name": "n0"}})


def test_only_the_service_makes_pods_that_ask_for_names_of_gangs() -> None:
    domain = settings_of(namespace=NAMESPACE).domain
    for pod in pods_for(GROUP, AgentStart(where="/gavel/allocations/j1.3.ab"), names_of_gang(GROUP, domain), FULL):
        assert allows(ACCOUNT, "Pod", pod)
        assert not allows(SOMEBODY, "Pod", pod)
    plain = {"spec": {"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}]}}
    assert allows(SOMEBODY, "Pod", plain)
    before = {"name": "b", "resources": {"requests": {GANG: "1"}}}
    assert not allows(SOMEBODY, "Pod", {"spec": {**plain["spec"], "initContainers": [before]}})
