"""What plays the API server answers as the real one did, request by request; and the real one still does."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane
from tests.backends.kubernetes import kind_transcript, transcript
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.training_jobs import a_plane_with_the_kind


def plain(steps: list[Any]) -> list[Any]:
    """As JSON has it."""
    return json.loads(json.dumps(steps))  # type: ignore[no-any-return]


def matches(which: ModuleType, kubeconfig: Path) -> bool:
    """Whether the API there answers as it is recorded."""
    return bool(plain(which.play(str(kubeconfig))) == json.loads(which.RECORDED.read_text()))


@pytest.mark.parametrize("which", [transcript, kind_transcript])
def test_what_plays_the_api_server_answers_as_the_real_one_did(tmp_path: Path, which: ModuleType) -> None:
    with a_stand_in(tmp_path) as kubeconfig:
        assert matches(which, kubeconfig)


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
def test_the_real_one_answers_as_it_did_when_it_was_recorded() -> None:
    with ControlPlane(users=("nobody",)) as own:
        assert matches(transcript, own.kubeconfig)


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
def test_the_real_one_answers_about_the_kind_as_it_did_when_it_was_recorded() -> None:
    with a_plane_with_the_kind():
        """It takes objects of a defined kind."""
    with ControlPlane() as own:
        assert matches(kind_transcript, own.kubeconfig)
