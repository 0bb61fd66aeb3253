"""The points of a crash again, with a real PostgreSQL server: in a file of its own, as it takes longest."""

from functools import partial
from pathlib import Path

import pytest

from gavel.faults.search import silenced
from gavel.faults.stores import InDatabase, InMemory, OpenStores
from tests.faults.crash_matrix import IS_FULL, STRUCK, counted, strike
from tests.faults.scenes import SCENES
from tests.postgresql import emptied, migrated_postgresql, postgresql

__all__ = ["migrated_postgresql", "postgresql"]

pytestmark = pytest.mark.full


def in_emptied(url: str, seed: int, _: Path) -> InDatabase:
    """The stores of a run in the one database of the tests, as empty as a fresh one."""
    return InDatabase(seed, emptied(url))


@pytest.fixture
def open_stores(migrated_postgresql: str) -> OpenStores:
    """Opens the database for each run."""
    return partial(in_emptied, migrated_postgresql)


@pytest.mark.timeout(1800 if IS_FULL else 400)
@pytest.mark.parametrize("name", STRUCK)
def test_a_crash_at_any_point_breaks_nothing_on_postgresql(name: str, open_stores: OpenStores) -> None:
    strike(SCENES[name], open_stores, one_in=30)


def test_the_acts_are_the_same_on_postgresql(open_stores: OpenStores) -> None:
    with silenced():
        whole, again = counted(SCENES["a job"], open_stores), counted(SCENES["a job"], InMemory)
    assert (whole.began, whole.done) == (again.began, again.done)
