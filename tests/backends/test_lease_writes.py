"""A lease or a stop that could not be written is written when the order comes again."""

import json
from pathlib import Path

import pytest

from gavel.backends import machine
from gavel.backends.gang import LocalGang
from gavel.ports import LaunchGang
from gavel.types import GangState


@pytest.fixture
def running(tmp_path: Path) -> LocalGang:
    instruction = LaunchGang(
        job_id="j1",
        generation=1,
        user="ann",
        argv=("x",),
        env={},
        accelerator_type="a",
        worker_ids=("a-0",),
        resource="r",
        lease_expires_at_s=0.0,
        start_step=0,
        total_steps=1,
        checkpoint=None,
    )
    places = tmp_path / "gang", tmp_path / "checkpoints"
    gang = LocalGang(instruction, *places, machine.boottime_s() + 100, lease_grace_s=1.0)
    gang.remember()
    gang.state = GangState.RUNNING
    return gang


def lease(gang: LocalGang) -> dict[str, object]:
    return dict(json.loads((gang.directory / "lease.json").read_text()))


def test_an_extension_that_failed_is_tried_again(running: LocalGang, tmp_path: Path) -> None:
    until_s = running.lease_boottime_s + 50
    away = running.directory.rename(tmp_path / "away")
    with pytest.raises(OSError, match=r"lease\.json"):
        running.extend(until_s)
    away.rename(running.directory)
    running.extend(until_s)
    assert lease(running) == {"expires_boottime_s": until_s, "stop": False, "save_asked_s": 0.0}


def test_a_stop_that_failed_is_tried_again(running: LocalGang, tmp_path: Path) -> None:
    away = running.directory.rename(tmp_path / "away")
    with pytest.raises(OSError, match=r"lease\.json"):
        running.stop("")
    away.rename(running.directory)
    running.stop("")
    assert lease(running) == {"expires_boottime_s": running.lease_boottime_s, "stop": True, "save_asked_s": 0.0}
