"""The backend on what plays the API server, wherever there is none: a part of the conformance suite, and bad input."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.kubernetes.gates import KINDS
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
