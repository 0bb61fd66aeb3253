"""Why a pod does not start: the warnings that Kubernetes keeps of it, as its job is told them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.harness import find, gang
from gavel.backends.kubernetes import allocation
from gavel.backends.kubernetes.api import Api
from gavel.backends.kubernetes.pod_warnings import ASK_AGAIN_S, LETTERS_MAX, SUMMARY, warning_of
from gavel.backends.kubernetes.rights import OF_EVENTS
from gavel.types import Observation
from tests.backends.clusters import eventually
from tests.backends.kubernetes.clusters import KubernetesHarness, a_service_on
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.stand_in_rights import SERVICE
from tests.backends.kubernetes.stand_in_store import Store
from tests.backends.kubernetes.test_bad_input import notes
from tests.backends.kubernetes.test_gates import granted

EVENTS = "/api/v1/namespaces/default/events"
MOUNTED = "MountVolume.SetUp failed"


@contextmanager
def a_service_without_its_volume(
    store: Store, folder: Path, again_s: float = ASK_AGAIN_S, **settings: Any
) -> Iterator[KubernetesHarness]:
    """A service whose pods mount a directory that no node has; why they do not start is asked for at once."""
    missing = {"hostPath": {"path": str(folder / "missing"), "type": "Directory"}}
    with (
        pytest.MonkeyPatch.context() as patched,
        a_stand_in(folder, store) as kubeconfig,
        a_service_on(kubeconfig, folder / "own", node_volume=missing, **settings) as made,
    ):
        patched.setattr(allocation, "ASK_AFTER_S", 0.0)
        patched.setattr(allocation, "ASK_AGAIN_S", again_s)
        yield made


def says(seen: Observation, text: str) -> bool:
    return text in getattr(find(seen, "j1"), "waiting_for", "")


def test_a_volume_that_cannot_be_mounted_is_told_with_its_reason(tmp_path: Path) -> None:
    """1 a pod is bound and its volume is not there, 2 its job says so while it waits, 3 and the node at its end."""
    with a_service_without_its_volume(Store(), tmp_path, again_s=0.2, start_limit_s=5.0) as harness:
        harness.backend.execute(gang(harness, "j1", "a-0"))
        reason = f"{tmp_path / 'missing'} is not a directory"
        harness.wait_until(lambda seen: says(seen, "Kubernetes says FailedMount") and says(seen, reason))
        seen = harness.wait_until(lambda seen: bool(seen.cluster.nodes[0].problem))
        assert "a pod did not start within 5 s: FailedMount" in seen.cluster.nodes[0].problem


@pytest.mark.full
def test_a_pod_that_does_not_start_is_asked_about_now_and_then(tmp_path: Path) -> None:
    """Looks come many times a second; a pod is asked about once in a quarter of a minute."""
    with a_service_without_its_volume(Store(), tmp_path) as harness:
        harness.backend.execute(gang(harness, "j1", "a-0"))
        harness.wait_until(lambda seen: says(seen, "FailedMount"))
        before = harness.backend.calls["list"]
        for _ in range(50):
            harness.backend.observe()
        assert harness.backend.calls["list"] - before <= 1


def test_without_the_right_to_events_the_rule_is_named_and_the_state_is_told(tmp_path: Path) -> None:
    store = Store(granted(OF_EVENTS))
    with a_service_without_its_volume(store, tmp_path, context=SERVICE) as harness:
        rule = 'a Role with the rule apiGroups: [""], resources: ["events"], verbs: ["list"]'
        eventually(lambda: any(rule in note for note in notes(harness.backend)))
        harness.backend.execute(gang(harness, "j1", "a-0"))
        harness.wait_until(lambda seen: says(seen, "Kubernetes says ContainerCreating"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], ""),
        ([("Normal", "Pulled", "an image", "1")], ""),
        ([("Warning", "FailedMount", MOUNTED, "1")], f"FailedMount: {MOUNTED}"),
        ([("Warning", "FailedMount", "old", "1"), ("Warning", "FailedMount", "new", "2")], "FailedMount: new"),
        (
            [("Warning", "FailedMount", MOUNTED, "1"), ("Warning", "FailedMount", SUMMARY, "2")],
            f"FailedMount: {MOUNTED}",
        ),
        ([("Warning", "FailedMount", "x" * 1000, "1")], f"FailedMount: {'x' * 1000}"[:LETTERS_MAX]),
        ([("Warning", "FailedMount", "of several\nlines", "1")], "FailedMount: of several lines"),
    ],
)
def test_the_last_warning_with_a_reason_is_chosen(
    tmp_path: Path, events: list[tuple[str, str, str, str]], expected: str
) -> None:
    with a_stand_in(tmp_path) as kubeconfig:
        api = Api(str(kubeconfig), "", Counter())
        for number, (kind, reason, message, second) in enumerate(events):
            for pod in ("p1", "p2"):
                about = {"kind": "Pod", "namespace": "default", "name": pod}
                event = {
                    "metadata": {"name": f"{pod}.{number}"},
                    "involvedObject": about,
                    "type": kind,
                    "reason": reason,
                    "message": message if pod == "p1" else "of another",
                    "lastTimestamp": f"2020-01-01T00:00:0{second}Z",
                }
                api.create(EVENTS, event)
        assert warning_of(api, "default", "p1") == expected
