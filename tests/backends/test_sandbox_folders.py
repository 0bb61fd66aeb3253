"""Which folders of its node a job gets in its sandbox: those that it may name, whatever is swapped meanwhile."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import sandbox, sandbox_mounts
from gavel.backends.harness import exit_of
from gavel.types import GangOutcome
from tests.backends.clusters import LocalHarness, script
from tests.backends.sandboxes import a_launch, needs_bubblewrap, ran, reopen

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


@needs_bubblewrap
@pytest.mark.parametrize("named", ["workdir", "data", "python"])
def test_a_job_cannot_name_what_the_service_keeps(sandboxed: LocalHarness, named: str) -> None:
    path = str(sandboxed.folder / "operator.token") if named != "workdir" else str(sandboxed.folder / "work" / "other")
    os.chmod(sandboxed.folder / "operator.token", 0o755)
    end = ran(sandboxed, "true", **{named: {"x": path} if named == "data" else path})
    assert end.outcome is GangOutcome.NOT_STARTED
    assert end.message == f"{path} is in a folder of the service itself; name another folder"


@needs_bubblewrap
def test_a_link_leads_no_job_into_what_the_service_keeps(sandboxed: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sandboxed.folder / "work")
    end = ran(sandboxed, "true", workdir=str(tmp_path / "link" / "other"))
    assert "is in a folder of the service itself" in end.message


@needs_bubblewrap
@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib", "/home"])
def test_a_folder_of_the_system_is_nobodys_working_directory(sandboxed: LocalHarness, path: str) -> None:
    end = ran(sandboxed, "true", workdir=path)
    assert (end.outcome, end.message) == (
        GangOutcome.NOT_STARTED,
        f"{path} is a folder of the system; name one of your own",
    )


@needs_bubblewrap
def test_an_environment_outside_the_folders_of_a_user_is_refused_by_its_name(
    harness: LocalHarness, tmp_path: Path
) -> None:
    """Its program is a link to the system's Python, which every job may name; its packages are elsewhere."""
    (tmp_path / "bob" / "bin").mkdir(parents=True)
    (tmp_path / "bob" / "bin" / "python").symlink_to("/usr/bin/env")
    reopen(harness, job_folders=lambda user: ())
    refused = ran(harness, "true", python=str(tmp_path / "bob" / "bin" / "python"))
    assert refused.outcome is GangOutcome.NOT_STARTED
    assert refused.message == (
        f"{tmp_path}/bob is outside the folders that jobs may name here: none but their own (job_folders)"
    )


@needs_bubblewrap
def test_jobs_name_folders_where_the_operator_allows_it(harness: LocalHarness, tmp_path: Path) -> None:
    for user in ("ann", "bob"):
        (tmp_path / "home" / user).mkdir(parents=True)
    reopen(harness, job_folders=lambda user: (f"{tmp_path}/home/{user}",))
    refused = ran(harness, "true", workdir=str(tmp_path / "home" / "bob"))
    assert refused.message == (
        f"{tmp_path}/home/bob is outside the folders that jobs may name here: {tmp_path}/home/ann"
    )
    harness.backend.execute(script(harness, "pwd", job_id="j2", workdir=str(tmp_path / "home" / "ann")))
    assert exit_of(harness, "j2").log_tail == f"{tmp_path}/home/ann"


@needs_bubblewrap
def test_programs_that_end_at_once_are_all_begun_however_many_they_are(open_folder: Path) -> None:
    folder = open_folder / "gangs" / "j1" / "1"
    for each in (folder / "job", folder / "tmp"):
        each.mkdir(parents=True)
    launch = a_launch(open_folder, folder)
    launch["sandbox"]["shown"] = sandbox_mounts.common_folders()
    spec = {"cpus": [], "env": {"PATH": "/usr/bin:/bin"}}
    count = 2 * sandbox.ASKED_AT_ONCE + 3
    made = sandbox.Sandbox(launch)
    try:
        begun = made.begin_all([(["sh", "-c", f"exit {number}"], "/", spec, None) for number in range(count)])
        ended: dict[int, int] = {}
        while len(ended) < count:
            select.select([made], [], [], 10.0)
            more = dict(made.ended())
            assert more, "a program has not ended"
            ended |= more
        assert [os.waitstatus_to_exitcode(ended[pid]) for pid, _, _ in begun] == list(range(count))
    finally:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
        made.close()


# --- folders that are swapped ---------------------------------------------------------------------------------------

SWAPS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with the test, however that ends
one, other = (os.fsencode(path) for path in sys.argv[1:])
print("there", flush=True)
while True:
    libc.renameat2(-100, one, -100, other, 2)  # RENAME_EXCHANGE: at each moment there is one of the two
"""


@pytest.fixture
def swapped(open_folder: Path) -> tuple[dict[str, Any], Path, Path]:
    """A launch whose job names the folder of its user; and that folder, and a link to another user's."""
    folder, mine, link = (
        open_folder / "gangs" / "j1" / "1",
        open_folder / "ann" / "project",
        open_folder / "ann" / "link",
    )
    for each in (folder / "job", folder / "tmp", mine, open_folder / "bob"):
        each.mkdir(parents=True)
    (mine / "word").write_text("mine")
    (open_folder / "bob" / "word").write_text("secret")
    link.symlink_to(open_folder / "bob")
    launch = a_launch(open_folder, folder)
    launch["sandbox"]["shown"] = sandbox_mounts.common_folders()
    return launch | {"job_folders": [str(open_folder / "ann")], "named": {str(mine): "rw"}}, mine, link


def word_in(launch: dict[str, Any], folder: Path) -> str:
    """What a program reads in its folder; "" if it does not start."""
    spec = {"cpus": [], "env": {"PATH": "/usr/bin:/bin"}}
    try:
        made = sandbox.Sandbox(launch)
    except OSError:
        return ""
    try:
        _, output, status = made.begin(["cat", str(folder / "word")], "/", spec)
        os.close(status)
        with open(output, "rb") as file:
            os.set_blocking(output, True)
            return file.read().decode()
    except OSError as problem:
        assert "its sandbox did not start: " in str(problem)
        return ""
    finally:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
        made.close()


@needs_bubblewrap
def test_a_folder_that_is_swapped_before_it_is_mounted_is_not_seen(
    swapped: tuple[dict[str, Any], Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 as it is the job reads its own, 2 swapped for a link after the check, 3 for another folder of another user."""
    launch, mine, link = swapped
    assert word_in(launch, mine) == "mine"
    spawn = os.posix_spawn

    def swap_and_spawn(*given: Any, **over: Any) -> int:
        mine.rename(mine.with_name("moved"))
        link.rename(mine)
        return spawn(*given, **over)

    monkeypatch.setattr(os, "posix_spawn", swap_and_spawn)
    assert word_in(launch, mine) == ""
    mine.unlink()
    mine.with_name("moved").rename(mine)
    link.mkdir()
    (link / "word").write_text("secret")
    assert word_in(launch, mine) == ""


@needs_bubblewrap
def test_a_user_who_swaps_a_folder_all_the_time_reads_no_other(swapped: tuple[dict[str, Any], Path, Path]) -> None:
    """The swapper is faster than any mount; each sandbox has the folder that was checked, or none."""
    launch, mine, link = swapped
    with subprocess.Popen([sys.executable, "-c", SWAPS, str(mine), str(link)], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None and swapper.stdout.readline() == b"there\n"
        try:
            words = [word_in(launch, mine) for _ in range(200 if IS_FULL else 20)]
        finally:
            swapper.kill()
    assert {*words} <= {"", "mine"}, words


@needs_bubblewrap
@pytest.mark.parametrize("own", ["work", "outputs", "checkpoints"])
def test_a_job_s_own_folder_that_has_become_a_link_is_no_way_out(
    sandboxed: LocalHarness, own: str, tmp_path: Path
) -> None:
    """1 the job ran without a sandbox and replaced its folder, 2 in one it does not start, and reads nothing."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "word").write_text("secret")
    (sandboxed.folder / own).mkdir(exist_ok=True)
    (sandboxed.folder / own / "j1").symlink_to(tmp_path / "other")
    end = ran(sandboxed, f"cat {sandboxed.folder}/{own}/j1/word")
    assert end.outcome is GangOutcome.LOST and "secret" not in end.log_tail
    assert end.message.endswith(f"{sandboxed.folder}/{own}/j1 has been replaced by a link")
