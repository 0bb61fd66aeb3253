"""A ring is heard by whoever listens last, and disturbs nobody when no one does."""

import threading
from pathlib import Path

import pytest

from gavel.daemon.wake import Doorbell

LIMIT_S = 30.0


@pytest.fixture
def door(tmp_path: Path) -> Path:
    folder = tmp_path / ("long" * 40)  # longer than a socket's path may be
    folder.mkdir()
    return folder / "gavel.db-wake"


def test_a_ring_wakes_the_listener_whatever_the_length_of_its_path(door: Path) -> None:
    bell, other, woken = Doorbell(door), Doorbell(door), threading.Event()
    bell.ring()  # nobody listens yet
    with bell.answered_by(woken.set):
        other.ring()
        assert woken.wait(LIMIT_S)
    other.ring()  # nobody listens any more
    for each in (bell, other):
        each.close()


def test_the_next_leader_is_rung_instead_of_the_one_before(door: Path) -> None:
    old, new, api = (Doorbell(door) for _ in range(3))
    first, second = threading.Event(), threading.Event()
    with old.answered_by(first.set), new.answered_by(second.set):
        api.ring()
        assert second.wait(LIMIT_S) and not first.is_set()
    for each in (old, new, api):
        each.close()


def test_a_listener_that_does_not_look_never_holds_up_a_ring(door: Path) -> None:
    bell, looks, woken = Doorbell(door), threading.Event(), threading.Event()

    def wake() -> None:
        woken.set()
        looks.wait(LIMIT_S)

    with bell.answered_by(wake):
        bell.ring()
        assert woken.wait(LIMIT_S)
        for _ in range(5000):
            bell.ring()
        looks.set()
    bell.close()
