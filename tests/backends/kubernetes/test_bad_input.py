"""What a service says that has no client of Kubernetes, no cluster, or nothing to run on."""

import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gavel.backends.harness import gang
from gavel.backends.kubernetes.backend import KubernetesBackend
from gavel.backends.kubernetes.kubelets import NodeSpec
from gavel.errors import BackendUnavailable, InvalidRequest
from tests.backends.clusters import eventually
from tests.backends.kubernetes.clusters import A, a_service_on, kubernetes_settings
from tests.backends.kubernetes.stand_in import a_stand_in

BASE = """
import sys
sys.modules["kubernetes"] = None
import gavel.cli, gavel.daemon.parts, gavel.demo
from gavel.backends.kubernetes.backend import _open
from gavel.backends.kubernetes.protocol import KubernetesSettings
try: _open(KubernetesSettings(resources=()))
except Exception as problem: print(problem)
"""


@pytest.mark.full
def test_without_the_extra_the_base_runs_and_says_how_to_install_it() -> None:
    done = subprocess.run([sys.executable, "-c", BASE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "backend: the Kubernetes backend needs its client: pip install 'gavel[kubernetes]'\n"


def test_a_context_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    with a_stand_in(tmp_path) as kubeconfig, a_service_on(kubeconfig, tmp_path / "own") as harness:
        settings = kubernetes_settings(tmp_path / "other", kubeconfig, context="imagined")
        with pytest.raises(InvalidRequest, match="set kubeconfig and context of the section kubernetes"):
            harness.made(kubernetes=settings, state_dir=tmp_path / "other" / "state")


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("nobody", 'rule apiGroups: [""], resources: ["nodes"], verbs: ["list"]'),
        ("stranger", "renew the credentials of the kubeconfig"),
    ],
)
def test_a_user_without_rights_is_told_what_to_do(tmp_path: Path, user: str, words: str) -> None:
    with a_stand_in(tmp_path) as kubeconfig, a_service_on(kubeconfig, tmp_path / "own") as harness:
        settings = kubernetes_settings(tmp_path / "other", kubeconfig, context=user)
        with closing(harness.made(kubernetes=settings, state_dir=tmp_path / "other" / "state")) as other:
            eventually(lambda: any(words in note for note in notes(other)))


def test_a_cluster_without_accelerators_says_what_to_install(tmp_path: Path) -> None:
    with (
        a_stand_in(tmp_path) as kubeconfig,
        a_service_on(kubeconfig, tmp_path, (NodeSpec(name="n0", resources={}),)) as bare,
    ):
        eventually(lambda: any("install the vendor's device plugin" in note for note in notes(bare.backend)))


def test_an_image_without_gavel_is_told_in_the_last_words_of_the_pod(tmp_path: Path) -> None:
    """1 the interpreter there is none, 2 the job and the node say what the pod printed, 3 no pod is left."""
    one = (NodeSpec(name="node-0", resources={A: 1}),)
    with (
        a_stand_in(tmp_path) as kubeconfig,
        a_service_on(kubeconfig, tmp_path / "own", one, python="/no/python") as harness,
    ):
        harness.backend.execute(gang(harness, "j1", "a-0"))
        seen = harness.wait_until(lambda seen: any(node.problem for node in seen.cluster.nodes))
        assert "exit code 127" in seen.cluster.nodes[0].problem and "/no/python" in seen.cluster.nodes[0].problem
        eventually(lambda: bool(harness.backend.observe()) and not harness.pods())


def notes(backend: KubernetesBackend) -> tuple[str, ...]:
    """What an operator is told, after one look at the cluster."""
    with suppress(BackendUnavailable):
        backend.observe()
    return backend.notes()
