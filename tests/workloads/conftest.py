"""Gangs that end with their test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.gang import Gang


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    made.stop()
