"""What plays the API server answers as the real one did, request by request; and the real one still does."""

import json
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.kubernetes.control_plane import ControlPlane
from tests.backends.kubernetes.stand_in import a_stand_in
from tests.backends.kubernetes.transcript import RECORDED, play


def plain(steps: list[Any]) -> list[Any]:
    """As JSON has it."""
    return json.loads(json.dumps(steps))  # type: ignore[no-any-return]


def test_what_plays_the_api_server_answers_as_the_real_one_did(tmp_path: Path) -> None:
    with a_stand_in(tmp_path) as kubeconfig:
        assert plain(play(str(kubeconfig))) == json.loads(RECORDED.read_text())


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
def test_the_real_one_answers_as_it_did_when_it_was_recorded() -> None:
    with ControlPlane(users=("nobody",)) as own:
        assert plain(play(str(own.kubeconfig))) == json.loads(RECORDED.read_text())
