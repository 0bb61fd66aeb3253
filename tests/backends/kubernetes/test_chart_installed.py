"""The chart on a real API server: installed, upgraded and uninstalled by Helm; the service as the chart's account.

The release that can be built anywhere is older than admission policies of this kind, so that these are not in it.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.harness import find, gang, is_in
from gavel.backends.kubernetes.api import Api, Object, Refused, items_of
from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import JSON_PATCH
from gavel.daemon.training_jobs.definition import OBJECTS
from gavel.types import GangState
from tests.backends.clusters import eventually
from tests.backends.kubernetes.charts import CHART, HIGHLY_AVAILABLE, NAMESPACE, RELEASE, helm
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on
from tests.backends.kubernetes.test_bad_input import notes

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

CHOSEN = {"a_gang_starts_when_its_resource_is_there", "a_gang_may_span_nodes"}
ROLES = "/apis/rbac.authorization.k8s.io/v1"
HERE = f"/api/v1/namespaces/{NAMESPACE}"
PLAIN = {**HIGHLY_AVAILABLE, "metrics": {}}  # without the kinds of another operator


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane on which the chart is installed."""
    library = helm()
    with ControlPlane() as made:
        with library.Config(kubeconfig_path=made.kubeconfig, namespace=NAMESPACE) as config:
            config.install(str(CHART), RELEASE, PLAIN, namespace=NAMESPACE, create_namespace=True)
        yield made


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return operator(plane)


def operator(plane: ControlPlane) -> Api:
    return Api(str(plane.kubeconfig), "", Counter())


@pytest.fixture
def kubeconfig(plane: ControlPlane, api: Api) -> Path:
    """A kubeconfig with the context `service`: a token of the chart's account, as its pods have one."""
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = api.create(f"{HERE}/serviceaccounts/{RELEASE}/token", request)["status"]["token"]
    config: dict[str, Any] = json.loads(plane.kubeconfig.read_text())
    config["users"].append({"name": "service", "user": {"token": token}})
    config["contexts"].append({"name": "service", "context": {"cluster": "here", "user": "service"}})
    path = plane.folder / "kubeconfig-of-service"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def harness(kubeconfig: Path, tmp_path: Path) -> Iterator[KubernetesHarness]:
    with a_service_on(kubeconfig, tmp_path, namespace=NAMESPACE, context="service") as made:
        yield made


@pytest.mark.parametrize("check", [each for each in CHECKS if each.__name__ in CHOSEN], ids=lambda each: each.__name__)
def test_a_service_with_the_rights_of_the_chart_conforms(check: Check, harness: KubernetesHarness) -> None:
    check(harness)
    assert harness.backend.notes() == ()


def test_a_right_that_is_taken_away_is_named_and_its_return_is_noticed(api: Api, harness: KubernetesHarness) -> None:
    """1 the account may not create pods, 2 the job says which rule is missing, 3 it is back: the gang starts."""
    path = f"{ROLES}/namespaces/{NAMESPACE}/roles/{RELEASE}"
    before = api.get(path)["rules"]
    without = [{**rule, "verbs": ["delete", "patch"]} if rule["resources"] == ["pods"] else rule for rule in before]
    api.patch(path, [{"op": "replace", "path": "/rules", "value": without}], JSON_PATCH)
    try:
        harness.backend.execute(gang(harness, "j1", "a-0", lasts_s=600))
        rule = 'a Role with the rule apiGroups: [""], resources: ["pods"], verbs: ["create"]'
        harness.wait_until(lambda seen: rule in getattr(find(seen, "j1"), "waiting_for", ""))
    finally:
        api.patch(path, [{"op": "replace", "path": "/rules", "value": before}], JSON_PATCH)
    harness.wait_until(is_in(GangState.RUNNING, "j1"), 90)


def test_a_right_that_was_never_granted_is_named_at_the_start(api: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """The role for the whole cluster has no right to the status of nodes: it is told before any gang starts."""
    path = f"{ROLES}/clusterroles/gavel-{NAMESPACE}-{RELEASE}"
    before = api.get(path)["rules"]
    less = [each for each in before if each["resources"] != ["nodes/status"]]
    api.patch(path, [{"op": "replace", "path": "/rules", "value": less}], JSON_PATCH)
    try:
        with a_service_on(kubeconfig, tmp_path, namespace=NAMESPACE, context="service") as harness:
            rule = 'a ClusterRole with the rule apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]'
            eventually(lambda: any(each.endswith(rule) for each in notes(harness.backend)))
    finally:
        api.patch(path, [{"op": "replace", "path": "/rules", "value": before}], JSON_PATCH)


def test_the_account_reads_no_secret_and_no_other_namespace_s_pods_can_be_made_by_it(kubeconfig: Path) -> None:
    own = Api(str(kubeconfig), "service", Counter())
    for call in (
        lambda: own.get(f"{HERE}/secrets", limit="0"),
        lambda: own.get("/api/v1/nodes/any"),
        lambda: own.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "a"}}),
        lambda: own.delete("/api/v1/nodes/any"),
    ):
        with pytest.raises(Refused, match="forbidden"):
            call()


def test_it_is_upgraded_and_uninstalled_and_what_holds_data_stays(plane: ControlPlane, api: Api) -> None:
    library = helm()
    with library.Config(kubeconfig_path=plane.kubeconfig, namespace=NAMESPACE) as config:
        before = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}")["spec"]
        config.upgrade(str(CHART), RELEASE, {**PLAIN, "replicas": 2}, namespace=NAMESPACE)
        after = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}")["spec"]
        assert (before["replicas"], after["replicas"]) == (3, 2) and before["template"] == after["template"]
        config.uninstall(RELEASE)
    with suppress(Refused):
        eventually(lambda: not items_of(api.get(f"{HERE}/services", limit="0")))
    left = {each["metadata"]["name"] for each in items_of(api.get(f"{HERE}/persistentvolumeclaims", limit="0"))}
    assert left == {"gavel-shared", "gavel-state"}
    assert items_of(api.get(OBJECTS, limit="0")) == ()
    with pytest.raises(Refused, match="not found"):
        api.get(f"{ROLES}/clusterroles/gavel-{NAMESPACE}-{RELEASE}")
