"""Fixtures of the backends' tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends import machine
from tests.backends.boottimes import Boottime
from tests.backends.clusters import LocalHarness
from tests.backends.sandboxes import reopen


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    """A local cluster, gone afterwards with every process of it."""
    made = LocalHarness(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def sandboxed(harness: LocalHarness) -> Iterator[LocalHarness]:
    """The harness, with what a service keeps beside its jobs, and without a folder that all jobs see."""
    reopen(harness, isolation="sandbox", hidden_paths=(str(harness.folder.parent / "gavel.toml"),))
    for name in ("gavel.db", "operator.token", "secrets.key", "work/other/notes", "gangs/other/1/lease.json"):
        (harness.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (harness.folder / name).write_text("secret")
    (harness.folder / "checkpoints" / "other").mkdir(parents=True)
    (harness.folder.parent / "gavel.toml").write_text("secret")
    yield harness


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def boottime() -> Iterator[Boottime]:
    """The boottime of this machine: 100 seconds, until the test changes it."""
    made = Boottime(100.0)
    with machine.boottime_from(made):
        yield made
