"""The lease that a supervisor keeps: when it is over, and what its file changes."""

import os
from pathlib import Path

import pytest

from gavel.backends import machine
from gavel.backends.gang_lease import Lease
from tests.backends.boottimes import Boottime


def write(folder: Path, expires_boottime_s: float, *, stop: bool = False) -> None:
    machine.write_json(str(folder / "lease.json"), {"expires_boottime_s": expires_boottime_s, "stop": stop})


def test_without_a_file_the_lease_of_the_launch_counts_to_its_last_instant(tmp_path: Path, boottime: Boottime) -> None:
    lease = Lease(str(tmp_path), 110.0)
    assert (lease.ended_by, lease.check()) == ("", "")
    boottime.now_s = 109.999
    assert (lease.check(), lease.ended_by, lease.expires_boottime_s) == ("", "", 110.0)
    boottime.now_s = 110.0
    assert (lease.check(), lease.ended_by) == ("lease", "lease")


def test_the_file_moves_the_end_each_time_that_it_is_written(tmp_path: Path, boottime: Boottime) -> None:
    lease = Lease(str(tmp_path), 110.0)
    for expires_s in (120.0, 130.0):
        write(tmp_path, expires_s)
        assert (lease.check(), lease.expires_boottime_s) == ("", expires_s)
    boottime.now_s = 129.0
    assert lease.check() == ""
    boottime.now_s = 130.0
    assert lease.check() == "lease"


def test_an_extension_that_comes_after_the_end_changes_nothing(tmp_path: Path, boottime: Boottime) -> None:
    """1 the lease is over when it is looked at, 2 the file that was written since says otherwise, 3 it stays over."""
    lease = Lease(str(tmp_path), 110.0)
    boottime.now_s = 110.0
    write(tmp_path, 199.0)
    assert lease.check() == "lease"
    boottime.now_s = 111.0
    assert (lease.check(), lease.ended_by) == ("lease", "lease")


def test_a_stop_ends_the_gang_within_its_lease_and_is_not_taken_back(tmp_path: Path, boottime: Boottime) -> None:
    lease = Lease(str(tmp_path), 110.0)
    write(tmp_path, 110.0, stop=True)
    assert lease.check() == "stop"
    write(tmp_path, 199.0, stop=False)
    assert lease.check() == "stop"


def test_a_signal_stops_as_the_file_does_whatever_the_file_says(tmp_path: Path, boottime: Boottime) -> None:
    lease = Lease(str(tmp_path), 110.0)
    lease.stop(15, None)
    write(tmp_path, 199.0)
    assert (lease.check(), lease.ended_by) == ("stop", "stop")


def test_a_file_that_was_read_is_not_read_again(tmp_path: Path, boottime: Boottime) -> None:
    """A supervisor looks 20 times a second; it reads the file anew only if its inode or its time has changed."""
    lease = Lease(str(tmp_path), 110.0)
    write(tmp_path, 120.0)
    lease.check()
    path = tmp_path / "lease.json"
    read = path.stat()
    path.write_text("{}")
    os.utime(path, ns=(read.st_atime_ns, read.st_mtime_ns))
    assert (lease.check(), lease.expires_boottime_s) == ("", 120.0)
    path.write_text('{"expires_boottime_s": 130.0, "stop": false}')
    os.utime(path, ns=(read.st_atime_ns, read.st_mtime_ns + 1))
    assert (lease.check(), lease.expires_boottime_s) == ("", 130.0)


def test_a_file_that_holds_no_lease_is_an_error_each_time(tmp_path: Path, boottime: Boottime) -> None:
    """The supervisor ends with it, and its gang is lost."""
    lease = Lease(str(tmp_path), 110.0)
    for content in ('{"expires_boottime_s": NaN, "stop": false}', '{"expires_boottime_s": "120", "stop": false}'):
        (tmp_path / "lease.json").write_text(content)
        with pytest.raises(ValueError):
            lease.check()
