"""A backend that cannot be opened yet is opened again and again, so a try that fails holds nothing."""

from pathlib import Path

import pytest

from gavel.backends.nodes.protocol import NodeLink
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.protocol import RaySettings
from gavel.clock import SystemClock
from gavel.errors import BackendUnavailable


def test_a_folder_is_free_again_when_its_cluster_cannot_be_reached(tmp_path: Path) -> None:
    def unreachable(settings: RaySettings, log: Path) -> NodeLink:
        raise BackendUnavailable("no cluster answers")

    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="no cluster answers"):
            RayBackend(
                ray=RaySettings(address="127.0.0.1:1"),
                open_link=unreachable,
                state_dir=tmp_path,
                clock=SystemClock(),
                lease_grace_s=1.0,
                log_bytes_per_job=1 << 16,
            )
