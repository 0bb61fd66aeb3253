"""Gates and PodGroups: no pod of a gang is bound before all of it is there, whoever is killed meanwhile.

What plays the API server knows gates and PodGroups from their documentation only: the control plane that can be built
anywhere is older than they are.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.harness import find, is_in, spread_gang, stop
from gavel.backends.kubernetes.api import Api, Object
from gavel.backends.kubernetes.gates import COSCHEDULING, KINDS, NATIVE, OF_GATES, Holding, served
from gavel.backends.kubernetes.kubelets import JSON_PATCH, NodeSpec
from gavel.backends.kubernetes.protocol import GATE
from gavel.backends.kubernetes.rights import OF_EVENTS, OF_GANGS, Right
from gavel.errors import BackendUnavailable
from gavel.types import GangState
from tests.backends.clusters import eventually
from tests.backends.kubernetes.clusters import A, KubernetesHarness, a_service_on
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.stand_in_rights import SERVICE, Granted
from tests.backends.kubernetes.stand_in_store import Failure, Store
from tests.backends.kubernetes.test_bad_input import notes

TWO = tuple(NodeSpec(name=f"node-{index}", resources={A: 1}) for index in range(2))
NAME = "default.gang.gavel.internal/j1.1"
OTHER = "other.example/gate"


class Stuck(Store):
    """Answers no patch of a pod's spec while `is_stuck`; every pod that is made gets the gates `added`, too."""

    is_stuck = False
    added: tuple[str, ...] = ()

    def merge(self, plural: str, key: str, body: Object, part: str) -> Object:
        if self.is_stuck and plural == "pods" and not part:
            raise Failure(503, "", "the server is about to end")
        return super().merge(plural, key, body, part)

    def create(self, plural: str, key: str, body: Object) -> Object:
        if plural == "pods":
            body["spec"]["schedulingGates"] += [{"name": name} for name in self.added]
        return super().create(plural, key, body)


@contextmanager
def a_service_with(store: Store, folder: Path, **settings: Any) -> Iterator[KubernetesHarness]:
    with (
        a_stand_in(folder, store) as kubeconfig,
        a_service_on(kubeconfig, folder / "own", TWO, **settings) as made,
    ):
        yield made


def gates(pod: Object) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or ()]


def bound(harness: KubernetesHarness) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in harness.pods() if pod["spec"].get("nodeName")]


def are_held(harness: KubernetesHarness) -> bool:
    """Whether both pods of the gang are there, and held back."""
    return bool(harness.backend.observe()) and [gates(pod) for pod in harness.pods()] == [[GATE]] * 2


def opened(store: Store) -> list[tuple[int, set[str], int]]:
    """What was there whenever a gate went: pods, nodes that have the gang's name, and PodGroups."""
    there: dict[str, Object] = {}
    named, groups, seen = set[str](), 0, []
    for _, plural, event, shown in store.events:
        name = shown["metadata"]["name"]
        if plural == "nodes":
            has_name = event != "DELETED" and NAME in shown["status"]["capacity"]
            named = named | {name} if has_name else named - {name}
        groups += plural in store.kinds and event == "ADDED"
        if plural == "pods" and event == "DELETED":
            there.pop(name, None)
        elif plural == "pods":
            if name in there and GATE in gates(there[name]) and GATE not in gates(shown):
                seen.append((len(there), set(named), groups))
            there[name] = shown
    return seen


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((), id="none"),
        pytest.param((COSCHEDULING,), marks=pytest.mark.full, id="plugin"),
        pytest.param((NATIVE,), marks=pytest.mark.full, id="native"),
        pytest.param(KINDS, id="both"),
    ],
)
def test_gates_go_once_all_pods_are_there_their_nodes_have_the_name_and_the_group_is_made(
    tmp_path: Path, kinds: tuple[Any, ...]
) -> None:
    """1 a gang runs, 2 at each gate that went everything was there, 3 the gang ends: its PodGroups go with its pods."""
    store = Store(has_gates=True, kinds=kinds)
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        assert opened(store) == [(2, {"node-0", "node-1"}, len(kinds))] * 2
        pods = {pod["metadata"]["uid"] for pod in harness.pods()}
        for kind in kinds:
            (group,) = store.objects[kind.path].values()
            assert {owner["uid"] for owner in group["metadata"]["ownerReferences"]} == pods
            assert group["spec"] == kind.spec(2)
        harness.backend.execute(stop("j1"))
        eventually(lambda: bool(harness.backend.observe()) and not harness.pods())
        assert not any(store.objects[kind.path] for kind in kinds)


def test_a_gang_of_one_pod_is_not_held(tmp_path: Path) -> None:
    """It cannot be bound in part: its pod has no gate to wait for, and no group."""
    store = Store(has_gates=True, kinds=KINDS)
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        (pod,) = harness.pods()
        assert "schedulingGates" not in pod["spec"] and "schedulingGroup" not in pod["spec"]
        assert not opened(store) and not any(store.objects[kind.path] for kind in KINDS)


@pytest.mark.full
def test_pods_name_their_group_as_each_scheduler_reads_it(tmp_path: Path) -> None:
    store = Store(has_gates=True, kinds=KINDS)
    with a_service_with(store, tmp_path, scheduler="gang-scheduler") as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        (group,) = store.objects[NATIVE.path].values()
        for pod in harness.pods():
            assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == group["metadata"]["name"]
            assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
            assert pod["spec"]["schedulerName"] == "gang-scheduler"


def test_a_service_that_is_killed_before_it_opens_the_gates_is_followed_by_one_that_does(tmp_path: Path) -> None:
    """1 pods are created and held, nothing is bound, 2 the service dies, 3 the next one starts these very pods."""
    store = Stuck(has_gates=True)
    store.is_stuck = True
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        eventually(lambda: are_held(harness))
        pods = {pod["metadata"]["uid"] for pod in harness.pods()}
        assert not bound(harness)
        harness.crash()
        store.is_stuck = False
        harness.recover()
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        assert {pod["metadata"]["uid"] for pod in harness.pods()} == pods


@pytest.mark.full
def test_a_service_that_is_killed_between_two_gates_is_followed_by_one_that_opens_the_other(tmp_path: Path) -> None:
    store = Stuck(has_gates=True)
    store.is_stuck = True
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        eventually(lambda: are_held(harness))
        harness.crash()
        path = f"/api/v1/namespaces/default/pods/{harness.pods()[0]['metadata']['name']}"
        harness.api.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
        store.is_stuck = False
        harness.recover()
        harness.wait_until(is_in(GangState.RUNNING, "j1"))


def test_held_pods_of_a_gang_that_nobody_wants_any_more_go_and_none_was_bound(tmp_path: Path) -> None:
    store = Stuck(has_gates=True)
    store.is_stuck = True
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        eventually(lambda: are_held(harness))
        harness.backend.execute(stop("j1"))
        eventually(lambda: bool(harness.backend.observe()) and not harness.pods())
        assert not opened(store)


@pytest.mark.full
def test_a_service_that_another_one_follows_opens_no_gate(tmp_path: Path) -> None:
    """1 pods are held, 2 a later service has the cluster and knows nothing of them, 3 they go and were never bound."""
    store = Stuck(has_gates=True)
    store.is_stuck = True
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        eventually(lambda: are_held(harness))
        with closing(harness.made(state_dir=tmp_path / "another")) as newer:
            eventually(lambda: [_observes(newer), _is_refused(harness)][1])
            store.is_stuck = False
            eventually(lambda: _observes(newer) and not harness.pods())
        assert not opened(store)


def test_the_gate_of_another_stays_and_is_named(tmp_path: Path) -> None:
    """1 an admission webhook adds a gate of its own, 2 ours goes and that one stays, 3 it goes, and the gang runs."""
    store = Stuck(has_gates=True)
    store.added = (OTHER,)
    with a_service_with(store, tmp_path) as harness:
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        text = f"the gates of others hold the pod back: {OTHER}"
        harness.wait_until(lambda seen: text in getattr(find(seen, "j1"), "waiting_for", ""))
        eventually(lambda: [gates(pod) for pod in harness.pods()] == [[OTHER]] * 2)
        for pod in harness.pods():
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
            harness.api.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
        harness.wait_until(is_in(GangState.RUNNING, "j1"))


def granted(*without: Right) -> Granted:
    """Rules for all that the service calls, less these rights."""
    needed = (*OF_GANGS, OF_EVENTS, OF_GATES, *(kind.right for kind in KINDS))
    return [
        (
            "default" if each.is_namespaced else "",
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]},
        )
        for each in needed
        if each not in without
    ]


@pytest.mark.parametrize("missing", [OF_GATES, NATIVE.right], ids=["gates", "groups"])
def test_without_the_right_to_use_them_gangs_run_without_them_and_the_rule_is_named(
    tmp_path: Path, missing: Right
) -> None:
    store = Store(granted(missing), has_gates=True, kinds=(NATIVE,))
    with a_service_with(store, tmp_path, context=SERVICE) as harness:
        rule = f'resources: ["{missing.resource}"], verbs: ["{missing.verb}"]'
        eventually(lambda: any(rule in note for note in notes(harness.backend)))
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
        assert bool(opened(store)) == (missing is not OF_GATES)
        assert not store.objects[NATIVE.path]


@pytest.mark.full
def test_a_right_that_is_taken_away_is_named_at_the_job_which_then_runs_without_gates(tmp_path: Path) -> None:
    """1 the service had the right when it asked, 2 its patch is refused, 3 the job says so; tried again, it runs."""
    store = Store(granted(), has_gates=True)
    with a_service_with(store, tmp_path, context=SERVICE) as harness:
        eventually(lambda: bool(harness.backend.observe()) and not notes(harness.backend))
        store.granted = granted(OF_GATES)
        harness.backend.execute(spread_gang(harness, "j1", 0, 1))
        text = 'resources: ["pods"], verbs: ["patch"]'
        harness.wait_until(lambda seen: text in getattr(find(seen, "j1"), "waiting_for", ""))
        harness.wait_until(is_in(GangState.RUNNING, "j1"), 90)
        assert not opened(store)


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (Store(), Holding()),
        (Store(kinds=KINDS), Holding()),
        (Store(has_gates=True), Holding(has_gates=True)),
        (Store(has_gates=True, kinds=(NATIVE,)), Holding(has_gates=True, kinds=(NATIVE,))),
    ],
    ids=["old", "old with groups", "gates", "both"],
)
def test_what_the_server_knows_is_asked_for_and_not_tried(tmp_path: Path, store: Store, expected: Holding) -> None:
    calls = Counter[str]()
    with a_stand_in(tmp_path, store) as kubeconfig:
        assert served(Api(str(kubeconfig), "", calls)) == expected
    assert set(calls) == {"get"}


def _is_refused(harness: KubernetesHarness) -> bool:
    try:
        harness.backend.observe()
    except BackendUnavailable as problem:
        return "taken" in str(problem)
    return False


def _observes(backend: Any) -> bool:
    try:
        return bool(backend.observe())
    except BackendUnavailable:
        return False
