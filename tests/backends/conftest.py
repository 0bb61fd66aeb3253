"""Fixtures of the backends' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.clusters import LocalHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    """A local cluster, gone afterwards with every process of it."""
    made = LocalHarness(tmp_path / "state")
    yield made
    made.close()
