"""The disk of a real service is full, or fails: nothing that it acknowledged is lost, and it goes on afterwards."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.chaos.ledger import ClientLedger
from tests.chaos.test_processes import SETTINGS

SOURCE = Path(__file__).with_name("failing_writes.c")
TMPFS_BYTES = 48 << 20
DRAIN_S = 240.0
SUBMITS = 12
LIMIT_S = 60.0

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of some megabytes, in memory."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size={TMPFS_BYTES},mode=755"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(path: Path) -> None:
    """Write to the file until nothing more fits."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def test_a_full_disk_refuses_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """1. Jobs run. 2. The disk is full: a submit is acknowledged or refused. 3. There is room: all jobs complete."""
    ledger = ClientLedger(tmp_path / "ledger", 1)
    with ServiceProcess(small_disk / "state", SETTINGS) as service:
        with Client(service.url, service.operator_token) as client:
            assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
            for _ in range(3):
                assert ledger.submit(client)
            assert wait_until(lambda: any(job["steps_reported"] for job in client.jobs()), LIMIT_S)
            fill(small_disk / "filler")
            for _ in range(SUBMITS):
                ledger.submit(client)
            assert ledger.refused, "no commit fits on a full disk"
        service.kill()
        (small_disk / "filler").unlink()
        service.start()
        with Client(service.url, service.operator_token) as client:
            ledger.check(client, DRAIN_S)


@pytest.fixture
def failing_writes(tmp_path: Path) -> Path:
    """The compiled library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "failing_writes.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_writes_of_the_database_that_fail_lose_nothing(failing_writes: Path, tmp_path: Path, code: int) -> None:
    """1. Some writes fail: each submit is acknowledged or not. 2. kill -9, all is well: all jobs complete, once."""
    switch, state_dir = tmp_path / "switch", tmp_path / "state"
    faulty = {"LD_PRELOAD": str(failing_writes), "FAILING_WRITES_SWITCH": str(switch)}
    faulty["FAILING_WRITES_BELOW"] = str(state_dir / "gavel.db")
    ledger = ClientLedger(tmp_path / "ledger", 1)
    with ServiceProcess(state_dir, SETTINGS | faulty) as service:
        for percent in (20, 60, 100):
            with Client(service.url, service.operator_token) as client:
                assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
                assert ledger.submit(client)
                switch.write_text(f"{code} {percent}")
                for _ in range(SUBMITS):
                    ledger.submit(client)
            if percent == 60:
                switch.unlink()
                with Client(service.url, service.operator_token) as client:
                    assert wait_until(lambda: ledger.submit(client) is not None, LIMIT_S), "it goes on by itself"
            service.kill()
            switch.unlink(missing_ok=True)
            service.start()
        assert ledger.refused >= SUBMITS, "with 100 percent nothing was acknowledged"
        with Client(service.url, service.operator_token) as client:
            ledger.check(client, DRAIN_S)
