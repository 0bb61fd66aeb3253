"""Whether a gang's throughput was measured while its cores were as busy as intended."""

import pytest

from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.sharing import CoreSharing
from gavel.types import Worker

ONE, TWO, THREE = ("one", 1), ("two", 1), ("three", 1)


@pytest.fixture
def cores() -> CoreSharing:
    """x-0 and x-1 on core 0, y-0 alone on core 1."""
    workers = {"x-0": 0, "x-1": 0, "y-0": 1}
    return CoreSharing(
        [
            LocalAccelerator(worker=Worker(id=name, node="here", accelerator_type=name[0]), cpus=(cpu,))
            for name, cpu in workers.items()
        ]
    )


def test_alone_on_a_shared_core_does_not_count(cores: CoreSharing) -> None:
    cores.look({"x-0": ONE, "y-0": TWO}.items())
    assert not cores.take(ONE)
    assert cores.take(TWO)


def test_both_busy_counts_from_the_start(cores: CoreSharing) -> None:
    cores.look({"x-0": ONE, "x-1": TWO}.items())
    assert cores.take(ONE)
    assert cores.take(TWO)


def test_a_gang_on_all_workers_of_its_core_counts(cores: CoreSharing) -> None:
    cores.look({"x-0": ONE, "x-1": ONE}.items())
    cores.look({"x-0": ONE, "x-1": ONE}.items())
    assert cores.take(ONE)
    cores.look({}.items())
    assert cores.take(ONE)


def test_a_neighbour_that_changes_hands_was_idle_in_between(cores: CoreSharing) -> None:
    cores.look({"x-0": ONE, "x-1": TWO}.items())
    cores.look({"x-0": ONE, "x-1": THREE}.items())
    assert not cores.take(ONE)
    assert cores.take(THREE)
    cores.look({"x-0": ONE, "x-1": THREE}.items())
    assert cores.take(ONE)


def test_a_neighbour_that_ends_spoils_the_last_report_too(cores: CoreSharing) -> None:
    cores.look({"x-0": ONE, "x-1": TWO}.items())
    cores.look({}.items())
    assert not cores.take(ONE)


def test_an_idle_moment_counts_until_the_next_reports(cores: CoreSharing) -> None:
    cores.look({"x-0": ONE}.items())
    cores.look({"x-0": ONE, "x-1": TWO}.items())
    cores.look({"x-0": ONE, "x-1": TWO}.items())
    assert not cores.take(ONE)
    assert cores.take(ONE)


def test_what_nobody_watched_is_doubted(cores: CoreSharing) -> None:
    cores.mark_disturbed(ONE, ["x-0"])
    cores.mark_disturbed(TWO, ["x-0", "x-1"])
    cores.mark_disturbed(THREE, ["y-0"])
    assert [cores.take(each) for each in (ONE, TWO, THREE)] == [False, True, True]


def test_a_packed_pair_counts_while_its_neighbour_is_busy(cores: CoreSharing) -> None:
    cores.look([("x-0", ONE), ("x-0", TWO), ("x-1", THREE)])
    cores.look([("x-0", ONE), ("x-0", TWO), ("x-1", THREE)])
    assert cores.take(ONE) and cores.take(TWO) and cores.take(THREE)
    cores.look([("x-0", ONE), ("x-0", TWO)])
    assert not cores.take(ONE) and not cores.take(TWO)
