"""The backend on what plays the API server, wherever there is none: a part of the conformance suite, and bad input."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.harness import gang, is_in
from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.gates import KINDS
from gavel.types import GangState
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on
from tests.backends.kubernetes.conftest import FULL
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.stand_in_store import Store

CHOSEN = {
    "a_gang_starts_when_its_resource_is_there",
    "a_gang_may_span_nodes",
    "a_new_service_adopts_what_runs_and_doubles_nothing",
}
"""With the counts of every change; all of the suite with the full ones."""


@pytest.fixture(
    params=[pytest.param(False, id="without gates"), pytest.param(True, marks=pytest.mark.full, id="with gates")]
)
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubernetesHarness]:
    store = Store(has_gates=request.param, kinds=KINDS if request.param else ())
    with a_stand_in(tmp_path, store) as kubeconfig, a_service_on(kubeconfig, tmp_path / "own") as made:
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "check", [each for each in CHECKS if FULL or each.__name__ in CHOSEN], ids=lambda check: check.__name__
)
def test_it_conforms(check: Check, played: KubernetesHarness) -> None:
    check(played)


class Named(Store):
    """Notes the pods that are made before any node has the extended resources that they require."""

    def __init__(self) -> None:
        super().__init__()
        self.early: list[str] = []

    def create(self, plural: str, key: str, body: Object) -> Object:
        if plural == "pods":
            there = {name for node in self.objects["nodes"].values() for name in node["status"]["capacity"]}
            (container,) = body["spec"]["containers"]
            self.early += {name for name in container["resources"]["requests"] if "/" in name} - there
        return super().create(plural, key, body)


def test_a_gang_that_is_wanted_in_the_middle_of_a_look_has_its_names_before_its_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler tries a pod that came before its name only after a back-off, so that each round cost a second."""
    store, is_between, goes_on = Named(), threading.Event(), threading.Event()
    with a_stand_in(tmp_path, store) as kubeconfig, a_service_on(kubeconfig, tmp_path / "own") as harness:
        control = harness.backend._link._control  # type: ignore[attr-defined]
        cordon = control._cordon

        def held() -> None:
            is_between.set()
            goes_on.wait(10)
            cordon()

        monkeypatch.setattr(control, "_cordon", held)
        assert is_between.wait(10)
        harness.backend.execute(gang(harness, "j1", "a-0"))
        goes_on.set()
        harness.wait_until(is_in(GangState.RUNNING, "j1"))
    assert store.early == []
