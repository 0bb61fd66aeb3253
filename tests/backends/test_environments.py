"""The environment that a job's setup makes: built once for each content, kept by leases that end, never half built."""

import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.environments import clear_environments, content_digest, dependency_files
from gavel.backends.harness import exit_of, find, gang
from gavel.types import GangOutcome
from tests.backends.clusters import LocalHarness, bare_python, command_of, eventually, pid_of, processes_of, script

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
SHOW = "python -c 'import sys; print(sys.prefix)'"


@pytest.fixture
def bare(harness: LocalHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHarness]:
    """The harness with an interpreter whose virtual environments have no pip, and are made at once."""
    bare_python(tmp_path)
    yield harness


def prepared(harness: LocalHarness, tmp_path: Path, setup: str, text: str = SHOW, **over: object) -> None:
    """Launch a gang on a bare interpreter, in the folder `project`."""
    (tmp_path / "project").mkdir(exist_ok=True)
    given = {"python": str(tmp_path / "python"), "workdir": str(tmp_path / "project"), "setup": setup}
    harness.backend.execute(script(harness, text, **{**given, **over}))  # type: ignore[arg-type]


def wheel(folder: Path, word: str) -> Path:
    """A wheel of one module `greeting`, with the word in it."""
    path = folder / "greeting-1.0-py3-none-any.whl"
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("greeting.py", f"WORD = {word!r}\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"greeting.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.mark.skipif(not IS_FULL, reason="the full profile: a virtual environment with its pip")
def test_a_setup_installs_what_the_ranks_import(harness: LocalHarness, tmp_path: Path) -> None:
    """1 the real pip installs a package, 2 `python` of the ranks has it, 3 the next job builds none."""
    project = tmp_path / "project"
    project.mkdir()
    wheel(project, "hello")
    (project / "requirements.txt").write_text("./greeting-1.0-py3-none-any.whl\n")
    line, show = "pip install --no-index -r requirements.txt", "import greeting, sys; print(greeting.WORD, sys.prefix)"
    for job_id in ("j1", "j2"):
        over = {"setup": line, "workdir": str(project), "python": sys.executable, "argv": ("python", "-c", show)}
        harness.backend.execute(script(harness, "", job_id=job_id, **over))
        end = exit_of(harness, job_id)
        assert end.outcome is GangOutcome.EXITED, end
        tail = end.log_tail.splitlines()
        (environment,) = (harness.folder / "environments").glob("*/1")
        assert tail[-1] == f"hello {environment}"
        assert any(each.startswith("[setup] ") and "greeting" in each for each in tail)


def test_one_of_two_gangs_builds_and_both_wait(bare: LocalHarness, tmp_path: Path) -> None:
    line = f"cd {tmp_path}; echo built >> builds; while [ ! -e go ]; do sleep 0.02; done"
    prepared(bare, tmp_path, line)
    prepared(bare, tmp_path, line, job_id="j2", worker_ids=("a-1",))
    eventually((tmp_path / "builds").exists)
    seen = bare.wait_until(lambda view: len(view.gangs) == 2)
    assert all(each.started_at_s is None for each in seen.gangs), "no rank executes before its environment is there"
    (tmp_path / "go").touch()
    assert exit_of(bare, "j1").log_tail.splitlines()[-1] == exit_of(bare, "j2").log_tail.splitlines()[-1]
    assert (tmp_path / "builds").read_text() == "built\n"


@pytest.mark.full
def test_a_setup_goes_on_when_the_lease_ends(bare: LocalHarness, tmp_path: Path) -> None:
    """1 the lease ends while it runs, 2 the service, too, 3 it is not begun anew, 4 the next gang runs in it."""
    line = f"cd {tmp_path}; echo built | tee -a builds; while [ ! -e go ]; do sleep 0.02; done; echo ready"
    prepared(bare, tmp_path, line, lease_expires_at_s=bare.now_s() + bare.short_s)
    eventually((tmp_path / "builds").exists)
    end = exit_of(bare, "j1")
    assert (end.outcome, end.log_tail) == (GangOutcome.PREEMPTED, "[setup] built")
    assert end.message == "its lease ended while its setup ran, which goes on"
    bare.crash()
    bare.recover()
    (tmp_path / "go").touch()
    prepared(bare, tmp_path, line, generation=2, resource="gavel/gang-j1-2")
    bare.backend.execute(gang(bare, "j1", generation=2)[:1])
    lines = exit_of(bare, "j1", 2).log_tail.splitlines()
    assert lines[0] == "[setup] ready" and lines[-1].endswith("/1"), "its log goes on where it was"
    assert (tmp_path / "builds").read_text() == "built\n"


def test_a_setup_that_fails_ends_the_job_and_is_not_kept(bare: LocalHarness, tmp_path: Path) -> None:
    """1 the job ends with the exit code and the last lines, 2 a later job with the same content builds anew."""
    line = f"cd {tmp_path}; echo looking; test -e there || {{ echo not there; exit 3; }}"
    prepared(bare, tmp_path, line)
    end = exit_of(bare, "j1")
    assert (end.outcome, end.message) == (GangOutcome.NOT_STARTED, "its setup failed with exit code 3")
    assert end.log_tail.splitlines()[-2:] == ["[setup] looking", "[setup] not there"]
    assert not list((bare.folder / "environments").glob("*/1")), "nothing of it is left"
    (tmp_path / "there").touch()
    prepared(bare, tmp_path, line, job_id="j2")
    end = exit_of(bare, "j2")
    assert end.outcome is GangOutcome.EXITED and end.log_tail.splitlines()[:-1] == ["[setup] looking"]


@pytest.mark.full
def test_a_setup_that_takes_too_long_is_ended_with_all_its_processes(bare: LocalHarness, tmp_path: Path) -> None:
    bare.crash()
    bare.backend = bare.open(preparation=bare.preparation(setup_limit_s=1.0))
    prepared(bare, tmp_path, "setsid sleep 1234 & sleep 1234")
    assert exit_of(bare, "j1").message == "its setup took longer than 1 s (setup_limit_s)"
    eventually(lambda: not processes_of(bare.folder))


def test_a_setup_that_was_cut_off_never_counts_as_built(bare: LocalHarness, tmp_path: Path) -> None:
    """1 its process is killed, 2 the gang is lost, which is no failure of the job, 3 the next gang builds anew."""
    line = f"cd {tmp_path}; echo $(stat -Lc %i /proc/self/ns/p?d):$$ >> pids; test -e go || sleep 1234"
    prepared(bare, tmp_path, line)
    eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().endswith("\n"))
    shell = pid_of((tmp_path / "pids").read_text().strip())
    (builder,) = (pid for pid in processes_of(bare.folder) if b"environment_build.py" in command_of(pid))
    os.kill(builder, signal.SIGKILL)
    end = exit_of(bare, "j1")
    assert (end.outcome, end.message) == (GangOutcome.LOST, "its setup was lost: its setup was cut off")
    eventually(lambda: not Path(f"/proc/{shell}").exists())
    (tmp_path / "go").touch()
    prepared(bare, tmp_path, line, job_id="j2")
    assert exit_of(bare, "j2").log_tail.splitlines()[-1].endswith("/2")


@pytest.mark.full
def test_an_end_of_the_gang_before_its_ranks_counts_no_training(bare: LocalHarness, tmp_path: Path) -> None:
    prepared(bare, tmp_path, "sleep 1234", lease_expires_at_s=bare.now_s() + bare.short_s)
    exit_of(bare, "j1")
    seen = find(bare.backend.observe(), "j1")
    assert seen is not None and seen.started_at_s is None and seen.reports == ()
    bare.close()


def launch(root: Path, **over: object) -> dict[str, object]:
    setup = {"text": "pip install -r requirements.txt", "root": "/r", "env": {"PATH": "/bin", "HOME": "/home"}}
    given = {"user": "ann", "cwd": str(root), "python": sys.executable, "setup": setup, "secrets": {}}
    return {**given, **over}


def test_what_decides_on_an_environment_is_in_its_digest(tmp_path: Path) -> None:
    """1 user, line, variables, interpreter and dependency files count, 2 the rest of the code and HOME do not."""
    (tmp_path / "requirements.txt").write_text("numpy\n")
    first = content_digest(launch(tmp_path))
    (tmp_path / "train.py").write_text("pass\n")
    other_home = {**launch(tmp_path)["setup"], "env": {"PATH": "/bin", "HOME": "/else"}}  # type: ignore[dict-item]
    assert content_digest(launch(tmp_path, setup=other_home)) == first
    other_line = {**other_home, "text": "pip install numpy"}
    other_index = {**other_home, "env": {"PATH": "/bin", "PIP_INDEX_URL": "http://there"}}
    others = [launch(tmp_path, user="bob"), launch(tmp_path, python="/bin/sh"), launch(tmp_path, setup=other_line)]
    others += [launch(tmp_path, secrets={"TOKEN": "x"}), launch(tmp_path, setup=other_index)]
    digests = {content_digest(each) for each in others}
    (tmp_path / "requirements.txt").write_text("numpy\nscipy\n")
    assert len({first, *digests, content_digest(launch(tmp_path))}) == 7
    secret = content_digest(launch(tmp_path, secrets={"TOKEN": "1"}))
    assert secret == content_digest(launch(tmp_path, secrets={"TOKEN": "2"})), "a value is in nothing, nor in a digest"


def test_files_that_the_line_names_and_that_these_include_count(tmp_path: Path) -> None:
    (tmp_path / "needs").mkdir()
    (tmp_path / "needs" / "all.txt").write_text("-r base.txt\n--constraint=../limits.txt\n")
    for name in ("needs/base.txt", "limits.txt", "install.sh", "uv.lock", "other.txt"):
        (tmp_path / name).write_text(name)
    os.mkfifo(tmp_path / "requirements-fifo.txt")
    digests = dependency_files(str(tmp_path), "pip install -rneeds/all.txt && sh ./install.sh 'unclosed /dev/zero")
    assert list(digests) == ["install.sh", "limits.txt", "needs/all.txt", "needs/base.txt", "uv.lock"]


def test_environments_go_when_no_job_has_used_them_for_long(tmp_path: Path) -> None:
    """1 that of an unfinished job stays, 2 one that was used lately stays, 3 any other goes with its job's record."""
    old_s = time.time() - 1000
    (tmp_path / "jobs").mkdir()
    for digest, job_id in (("aa", "lives"), ("bb", "lately"), ("cc", "gone")):
        (tmp_path / digest).mkdir()
        (tmp_path / "jobs" / job_id).write_text(json.dumps({"digest": digest}))
        os.utime(tmp_path / digest, (old_s, old_s))
    for job_id in ("lives", "gone"):
        os.utime(tmp_path / "jobs" / job_id, (old_s, old_s))
    clear_environments(str(tmp_path), {"lives"}, time.time() - 500)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["aa", "bb", "jobs"]
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == ["lately", "lives"]


def test_pip_is_that_of_uv_where_uv_is_there(bare: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "uv").write_text('#!/bin/sh\necho uv "$@" into "$VIRTUAL_ENV"\n')
    (tmp_path / "tools" / "uv").chmod(0o755)
    prepared(bare, tmp_path, "pip install numpy", "true", env={"PATH": f"{tmp_path}/tools:/usr/bin:/bin"})
    (environment,) = exit_of(bare, "j1").log_tail.splitlines()
    assert environment.startswith("[setup] uv pip install numpy into ") and environment.endswith("/1")
