"""Two backends as one show what every backend must show."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from tests.backends.several.clusters import SeveralHarness


@pytest.fixture
def several(tmp_path: Path) -> Iterator[SeveralHarness]:
    """Two local backends as one, gone afterwards with every process of them."""
    made = SeveralHarness(tmp_path / "state")
    yield made
    made.close()


QUICK = (
    "a_gang_may_span_nodes",
    "a_new_service_adopts_what_runs_and_doubles_nothing",
    "a_stop_refuses_the_launch_that_comes_after_it",
    "what_cannot_be_a_name_is_refused_before_the_cluster_sees_it",
    "what_is_held_is_shown",
)


@pytest.mark.full(*(check.__name__ for check in CHECKS if check.__name__ not in QUICK))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_two_backends_as_one_conform(check: Check, several: SeveralHarness) -> None:
    check(several)
