"""Fixtures of the tests of several backends as one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.several.links import Services


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """A service over two virtual clusters, each behind a link."""
    made = Services(tmp_path)
    made.seen()
    yield made
    made.kill()
