"""Scenarios that once failed, each by a bug of the production code that was mended: none fails again."""

from pathlib import Path

import pytest

from gavel.faults.records import scenario_of
from gavel.faults.search import silenced
from gavel.faults.world import run

MUSEUM = sorted(Path(__file__).with_name("museum").glob("*.json"))


@pytest.mark.parametrize("path", MUSEUM, ids=lambda path: path.stem)
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    with silenced():
        assert run(scenario_of(path.read_text())).violation is None
