"""The rights that the chart grants: what the service calls with them, and what it says where one is missing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gavel.backends.harness import find, gang, is_in, spread_gang, stop
from gavel.backends.kubernetes.api import Api, Object
from gavel.backends.kubernetes.gates import KINDS, Holding
from gavel.backends.kubernetes.rights import OF_CORDONS, OF_EVENTS, OF_GANGS, Right, missing_rights
from gavel.daemon.training_jobs.controller import OF_OBJECTS
from gavel.ports import CordonNode
from gavel.types import GangState
from tests.backends.clusters import eventually
from tests.backends.kubernetes.charts import NAMESPACE, rendered, rules
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on, kubernetes_settings
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.stand_in_rights import NOBODY, SERVICE, Call
from tests.backends.kubernetes.stand_in_store import Store
from tests.backends.kubernetes.test_bad_input import notes
from tests.backends.kubernetes.test_gates import TWO
from tests.backends.kubernetes.training_jobs import define, served

OF_GROUPS = Holding(has_gates=True, kinds=KINDS).rights
ALL = [*OF_GANGS, OF_EVENTS, OF_CORDONS, *OF_GROUPS, *OF_OBJECTS]
CREATE_PODS = Right(verb="create", resource="pods", is_namespaced=True)


@contextmanager
def a_service_with(store: Store, folder: Path) -> Iterator[KubernetesHarness]:
    """A service that has only the rights of the chart, in its namespace."""
    with (
        a_stand_in(folder, store) as kubeconfig,
        a_service_on(kubeconfig, folder / "own", TWO, namespace=NAMESPACE, context=SERVICE) as made,
    ):
        yield made


def granted(without: Right | None = None) -> list[tuple[str, Object]]:
    """The rules of the chart, less one right."""
    lacking = (without.verb, without.group, without.resource) if without else ()
    return [
        (where, {"apiGroups": [group], "resources": [name], "verbs": [verb]})
        for where, rule in rules(rendered({}))
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
        if (verb, group, name) != lacking
    ]


def as_right(call: Call) -> tuple[str, str, str]:
    return call.verb, call.group, call.resource


def test_gangs_and_objects_ask_for_all_that_the_chart_grants_and_no_more(tmp_path: Path) -> None:
    """1 a gang comes and goes, 2 an object is submitted and deleted, 3 a node is cordoned: all granted, all used.

    Events of pods are listed only where one does not start (test_pod_warnings.py).
    """
    store = Store(granted(), has_gates=True, kinds=KINDS)
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        harness.backend.execute(stop("j1"))
        eventually(lambda: bool(harness.backend.observe()) and not harness.pods())
        define(harness.api)
        with served(tmp_path / "state", harness.kubeconfig, "team", context=SERVICE) as service:
            service.create("first")
            service.until("first", state="QUEUED")
            service.delete("first")
            eventually(lambda: service.is_gone("first"))
        harness.backend.execute([CordonNode(node="node-0", is_cordoned=True)])
        harness.wait_until(lambda seen: seen.cordons["node-0"])
        assert harness.backend.notes() == ()
    assert {as_right(each) for each in store.calls} == {
        (each.verb, each.group, each.resource) for each in (*OF_GANGS, OF_CORDONS, *OF_GROUPS, *OF_OBJECTS)
    }
    namespaced = {(each.verb, each.resource) for each in store.calls if each.group == "" and each.namespace}
    assert namespaced == {("create", "pods"), ("delete", "pods"), ("patch", "pods"), ("create", "events")}


@pytest.mark.parametrize("right", ALL, ids=lambda right: f"{right.verb}-{right.resource}-{right.group}")
def test_each_right_that_is_missing_is_named_with_its_rule(tmp_path: Path, right: Right) -> None:
    with a_stand_in(tmp_path, Store(granted(right))) as kubeconfig:
        (sentence,) = missing_rights(Api(str(kubeconfig), SERVICE, Counter()), ALL, NAMESPACE)
    assert sentence.startswith(f"the service may not {right.verb} {right.resource} in Kubernetes; grant it by a ")
    kind = "Role" if right.is_namespaced else "ClusterRole"
    rule = f'apiGroups: ["{right.group}"], resources: ["{right.resource}"], verbs: ["{right.verb}"]'
    assert sentence.endswith(f"by a {kind} with the rule {rule}")


def test_a_user_without_any_right_is_told_of_all_of_them(tmp_path: Path) -> None:
    with a_service_with(Store(granted()), tmp_path) as harness:
        settings = kubernetes_settings(tmp_path / "other", harness.kubeconfig, context=NOBODY)
        with closing(harness.made(kubernetes=settings, state_dir=tmp_path / "other" / "state")) as other:
            eventually(
                lambda: len([each for each in notes(other) if "the service may not" in each]) == len(OF_GANGS) + 1
            )


def test_a_service_without_the_right_to_pods_says_so_at_the_job_and_goes_on_once_it_has_it(tmp_path: Path) -> None:
    """1 no gang starts and the rule is named at its job, 2 the rule is granted, 3 the gang starts."""
    store = Store(granted(CREATE_PODS))
    with a_service_with(store, tmp_path) as harness:
        eventually(lambda: any("may not create pods" in each for each in notes(harness.backend)))
        harness.backend.execute(gang(harness, "j1", "a-0", lasts_s=600))
        rule = 'a Role with the rule apiGroups: [""], resources: ["pods"], verbs: ["create"]'
        harness.wait_until(lambda seen: rule in getattr(find(seen, "j1"), "waiting_for", ""))
        store.granted = granted()
        harness.wait_until(is_in(GangState.RUNNING, "j1"), 90)
        eventually(lambda: bool(harness.backend.observe()) and not harness.backend.notes(), 90)
