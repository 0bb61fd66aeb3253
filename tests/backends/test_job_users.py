"""Jobs as Unix users of their own: what one user's job cannot do to another's, and what goes on to work."""

import json
import os
import pwd
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from gavel.backends import job_users, machine, sandbox_mounts
from gavel.backends.checkpoint_copies import copy_checkpoint
from gavel.backends.conformance import CHECKS, Check
from gavel.backends.containers import in_container, missing_command
from gavel.backends.harness import exit_of, is_in, stop
from gavel.backends.input_cache import CachedInput
from gavel.backends.job_users import problem_of_job_users
from gavel.backends.machine import write_json
from gavel.backends.sandbox import bubblewrap
from gavel.errors import LimitReached
from gavel.ports import ExtendLease, PrepareGang
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, command_of, directory, eventually, processes_of, script

ANN, BOB = 2_000_001, 2_000_002
UIDS = {"ann": ANN, "bob": BOB, "eve": BOB + 1}
IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
IN_BOTH_PROFILES = ("a_gang_runs_in_a_copy_of_its_code", "a_setup_runs_once_for_each_content")
PYTHON = "/usr/bin/python3"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(PYTHON).exists(), reason="needs root, to be other users, and a Python of the system"
)
isolations = pytest.mark.parametrize(
    "isolation",
    [
        "none",
        pytest.param(
            "sandbox", marks=pytest.mark.skipif(bool(bubblewrap().problem), reason="bubblewrap makes no sandbox here")
        ),
    ],
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHarness]:
    """A local cluster below /var/lib, as that of a unit, in a folder that all users may pass (pytest's are closed)."""
    umask = os.umask(0o077)
    with tempfile.TemporaryDirectory(dir="/var/lib", prefix="gavel-test-") as name:
        os.chmod(name, 0o711)
        made = LocalHarness(Path(name) / "state")
        yield made
        made.close()
    os.umask(umask)


def reopen(cluster: LocalHarness, isolation: str) -> None:
    cluster.crash()
    over = {"isolation": isolation, "uid_of": UIDS.__getitem__, "shown_folders": ()}
    cluster.backend = cluster.open(preparation=cluster.preparation(**over))


def skip_in_root(isolation: str) -> None:
    if isolation == "none" and os.path.realpath(sys.executable).startswith("/root/"):
        pytest.skip("the interpreter is in /root, which other users cannot pass")


@isolations
def test_a_program_and_its_files_are_those_of_its_user(cluster: LocalHarness, isolation: str) -> None:
    """Nothing can make it more than that user, and it has no group of the service."""
    reopen(cluster, isolation)
    made = 'touch "$HOME/home" "$GAVEL_CHECKPOINT_DIR/c" "$GAVEL_OUTPUT_DIR/o" $GAVEL_GANG_DIR/g /dev/shm/m'
    text = f"id -u; id -g; id -G; grep -e NoNewPrivs -e CapPrm /proc/self/status; {made}; rm /dev/shm/m"
    cluster.backend.execute(script(cluster, text))
    end = exit_of(cluster, "j1")
    assert end.log_tail.split() == [*[str(ANN)] * 3, "CapPrm:", "0" * 16, "NoNewPrivs:", "1"], end
    for path in ("work/j1", "checkpoints/j1", "outputs/j1", "gangs/j1/1/job", "gangs/j1/1/tmp"):
        status = (cluster.folder / path).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (ANN, ANN, 0o700), path
    for path in ("work/j1/home", "checkpoints/j1/c", "outputs/j1/o", "gangs/j1/1/job/g"):
        assert (cluster.folder / path).stat().st_uid == ANN
    assert [each.path for each in cluster.outputs().listing("j1").files] == ["o"]


ATTEMPTS = """
import json, os, sys
state, other, service = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def outcome(attempt):
    try:
        return repr(attempt())
    except OSError as problem:
        return "refused"

paths = [f"{state}/{path}" for path in (
    *("operator.token", "gavel.db", "logs/j1.log", "code", "gangs/j1", "work", "work/j1", "work/j1/word"),
    *("checkpoints/j1", "outputs/j1", "gangs/j1/1", "gangs/j1/1/launch.json", "gangs/j1/1/job/word"),
    *("gangs/j1/1/job", "gangs/j1/1/lease.json"),
)]
tried = {path: outcome(lambda: os.listdir(path) if os.path.isdir(path) else open(path).read()) for path in paths}
home = os.path.dirname(os.environ["GAVEL_GANG_DIR"])
tried |= {f"write {each}": outcome(lambda: open(each, "a")) for each in (f"{home}/exit.json", f"{home}/launch.json")}
tried |= {"rename": outcome(lambda: os.rename(f"{home}/job", f"{home}/gone"))}
tried |= {f"kill {pid}": outcome(lambda: os.kill(pid, 0)) for pid in (other, service, os.getppid())}
tried |= {f"environ {pid}": outcome(lambda: open(f"/proc/{pid}/environ").read()) for pid in (other, service)}
print(json.dumps({name: word for name, word in tried.items() if word != "refused"}))
"""


@isolations
def test_a_job_neither_reads_nor_ends_that_of_another_user(cluster: LocalHarness, isolation: str) -> None:
    """1 a job of ann writes and waits, 2 one of bob tries each, with root's own files beside, 3 none of it worked."""
    reopen(cluster, isolation)
    for name in ("operator.token", "gavel.db"):
        (cluster.folder / name).write_text("secret")
        (cluster.folder / name).chmod(0o644)
    wait = 'echo secret | tee "$HOME/word" "$GAVEL_GANG_DIR/word" > "$GAVEL_OUTPUT_DIR/word"; sleep 60'
    cluster.backend.execute(script(cluster, wait))
    cluster.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually((cluster.folder / "outputs/j1/word").exists)
    rank = machine.read_json(str(directory(cluster, "j1") / "started.json"))["pids"][0]
    words = (PYTHON, "-c", ATTEMPTS, str(cluster.folder), str(rank), str(os.getpid()))
    cluster.backend.execute(script(cluster, "", "b-0", job_id="j2", argv=words, user="bob"))
    end = exit_of(cluster, "j2")
    worked = json.loads(end.log_tail)
    if isolation == "sandbox":  # processes have other numbers there, and no folder has anything of another job
        assert worked.pop(f"{cluster.folder}/work") == "['j2']"
        worked = {name: word for name, word in worked.items() if not name.startswith(("kill", "environ"))}
    assert worked == {} and end.exit_code == 0, end
    assert Path(f"/proc/{rank}").exists()
    cluster.backend.execute(stop("j1"))
    assert exit_of(cluster, "j1").outcome is not GangOutcome.LOST


@isolations
def test_a_program_hears_the_request_to_stop_and_sees_its_new_lease(cluster: LocalHarness, isolation: str) -> None:
    """1 the service extends the lease, 2 the program reads that, 3 another service adopts it, 4 and stops it."""
    reopen(cluster, isolation)
    text = (
        "trap 'echo heard; exit 75' TERM; until cat $GAVEL_GANG_DIR/lease.json; do sleep 0.02; done; touch $HOME/seen"
    )
    cluster.backend.execute(script(cluster, f"{text}; while :; do sleep 0.02; done"))
    cluster.wait_until(is_in(GangState.RUNNING, "j1"))
    cluster.backend.execute([ExtendLease(job_id="j1", generation=1, expires_at_s=cluster.now_s() + 90)])
    eventually((cluster.folder / "work/j1/seen").exists)
    reopen(cluster, isolation)
    cluster.backend.execute(stop("j1"))
    end = exit_of(cluster, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.PREEMPTED, 75) and end.log_tail.endswith("heard")


def test_a_program_ends_with_its_supervisor(cluster: LocalHarness) -> None:
    """The kernel forgets at a change of the user that it was to; so that is said again afterwards."""
    reopen(cluster, "none")
    cluster.backend.execute(script(cluster, "exec sleep 60"))
    cluster.wait_until(is_in(GangState.RUNNING, "j1"))
    rank = machine.read_json(str(directory(cluster, "j1") / "started.json"))["pids"][0]
    os.kill(machine.read_json(str(directory(cluster, "j1") / "supervisor.json"))["pid"], signal.SIGKILL)
    eventually(lambda: machine.start_time(rank) is None)


@isolations
def test_a_job_begins_with_the_checkpoint_of_another_one(cluster: LocalHarness, isolation: str) -> None:
    """Two users have been given one copy; nobody else has, and neither writes it."""
    (cluster.folder / "checkpoints" / "old" / "3-40").mkdir(parents=True)
    (cluster.folder / "checkpoints" / "old" / "3-40" / "weights").write_text("weights")
    copy_checkpoint(cluster.folder / "checkpoints", "old", "3-40")
    reopen(cluster, isolation)
    text = 'cat "$GAVEL_CHECKPOINT/weights"; echo >> "$GAVEL_CHECKPOINT/weights" || echo refused'
    for job_id, user in (("j1", "ann"), ("j2", "bob")):
        cluster.backend.execute(script(cluster, text, job_id=job_id, user=user, from_checkpoint="old/3-40"))
        end = exit_of(cluster, job_id)
        assert end.log_tail.startswith("weights") and end.log_tail.endswith("refused"), end
    path = f"{cluster.folder}/checkpoints/.copies/old/3-40/weights"
    cluster.backend.execute(script(cluster, f"cat {path} || echo refused", job_id="j3", user="eve"))
    assert exit_of(cluster, "j3").log_tail.endswith("refused")


def test_without_the_setting_a_job_goes_on_as_the_service(cluster: LocalHarness) -> None:
    """1 a gang ran before there was the setting, 2 one with it, 3 one without it again: each has the job's files."""
    for generation, uid in enumerate((0, ANN, 0), start=1):
        cluster.crash()
        cluster.backend = cluster.open(
            preparation=cluster.preparation(isolation="auto", uid_of=lambda user, uid=uid: uid)
        )
        cluster.backend.execute(script(cluster, "cd && id -u >> ids && cat ids", generation=generation))
        end = exit_of(cluster, "j1", generation)
        assert end.log_tail.split() == ["0", str(ANN), "0"][:generation], end


@isolations
def test_an_input_is_the_user_s_to_read(cluster: LocalHarness, isolation: str) -> None:
    cached = CachedInput(str(cluster.folder / "inputs"), "ann", "https://example.org/words")
    part = Path(cached.begin("v1"))
    (part / "words").write_text("fetched")
    (part / "words").chmod(0o400)
    cached.finish("v1")
    cached.record("v1")
    (cluster.folder / "inputs" / "jobs").mkdir()
    write_json(str(cluster.folder / "inputs" / "jobs" / "j1"), {"words": {"ended": 1, "version": "v1"}})
    reopen(cluster, isolation)
    data = {"words": "https://example.org/words"}
    cluster.backend.execute(script(cluster, 'cat "$GAVEL_DATA_WORDS"', data=data))
    assert exit_of(cluster, "j1").log_tail.endswith("fetched")


@isolations
def test_an_input_is_read_by_its_user_and_kept_by_the_service(cluster: LocalHarness, isolation: str) -> None:
    """1 the process that asks the server is the user's, sees nothing of the state folder, and can never be more,
    2 what it has read is the service's, and the job reads it, 3 nothing of the process is left."""
    skip_in_root(isolation)
    reopen(cluster, isolation)
    (cluster.folder / "operator.token").write_text("secret")
    with serving(b"words") as (url, gate, uids):
        cluster.backend.execute(script(cluster, 'cat "$GAVEL_DATA_WORDS"', data={"words": url}))
        eventually(lambda: bool(uids))
        (reader,) = readers(cluster)
        status = dict(line.split(":", 1) for line in Path(f"/proc/{reader}/status").read_text().splitlines())
        assert status["Uid"].split() == status["Gid"].split() == [str(ANN)] * 4
        assert status["NoNewPrivs"].split() == ["1"] and status["CapPrm"].split() == ["0" * 16]
        if isolation == "sandbox":
            seen = os.listdir(f"/proc/{reader}/root{cluster.folder}")
            assert seen == ["inputs"], seen
        gate.set()
        end = exit_of(cluster, "j1")
    assert end.log_tail.endswith("words") and set(uids) == {ANN}, end
    (kept,) = cluster.folder.glob("inputs/*/*/words")
    assert (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (0, 0o440)
    assert not readers(cluster) and not list(cluster.folder.glob("inputs/*/home"))


def readers(cluster: LocalHarness) -> list[int]:
    """The processes that read an input, of this test."""
    home, pids = f"HOME={cluster.folder}/inputs/".encode(), []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            if home in (each / "environ").read_bytes() and b"input_reader.py" in command_of(int(each.name)):
                pids.append(int(each.name))
    return pids


@contextmanager
def serving(content: bytes) -> Iterator[tuple[str, Event, list[int]]]:
    """A real HTTP server: its address, what lets it answer, and the uids of those that have asked."""
    gate, uids = Event(), list[int]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Both ends: a connection that another test has ended may have had the same port towards another server.
            ends = (self.client_address[1], http.server_port)
            lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            uids.extend(int(line[7]) for line in lines if tuple(map(port_of, line[1:3])) == ends)
            gate.wait(30)
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/words", gate, uids
    gate.set()
    http.shutdown()
    http.server_close()
    thread.join()


def port_of(address: str) -> int:
    return int(address.partition(":")[2], 16)


def test_a_user_for_whom_there_is_no_uid_has_no_job_started(cluster: LocalHarness) -> None:
    def none_left(user: str) -> int:
        raise LimitReached("all 2 uids of job_users are given")

    cluster.crash()
    cluster.backend = cluster.open(preparation=cluster.preparation(uid_of=none_left))
    cluster.backend.execute(script(cluster, "true"))
    end = exit_of(cluster, "j1")
    assert (end.outcome, end.message) == (GangOutcome.NOT_STARTED, "all 2 uids of job_users are given")


@isolations
def test_a_program_that_starts_before_its_lease_is_its_user_s(cluster: LocalHarness, isolation: str) -> None:
    """1 its process waits as that user, 2 the same one runs when the lease begins."""
    reopen(cluster, isolation)
    (cluster.folder.parent / "train.py").write_text("import os\nprint(os.getuid(), os.getpid())")
    (cluster.folder.parent / "train.py").chmod(0o644)
    over = {"argv": (PYTHON, str(cluster.folder.parent / "train.py"))}
    set_resource, launched = script(cluster, "", **over)
    cluster.backend.execute([PrepareGang(gang=launched, until_s=cluster.now_s() + 60)])  # type: ignore[arg-type]

    def waiting() -> list[int]:
        pids = [pid for pid in processes_of(cluster.folder) if b"gavel_runtime._warm" in command_of(pid)]
        return [pid for pid in pids if Path(f"/proc/{pid}").stat().st_uid == ANN]

    eventually(lambda: len(waiting()) == 1)
    (pid,) = waiting()
    cluster.backend.execute([set_resource, launched])
    end = exit_of(cluster, "j1")
    assert end.log_tail.split()[0] == str(ANN) and end.exit_code == 0, end
    assert isolation == "sandbox" or end.log_tail.split()[1] == str(pid)


CHECKED = [check for check in CHECKS if IS_FULL or check.__name__ in IN_BOTH_PROFILES]


@isolations
@pytest.mark.parametrize("check", CHECKED, ids=lambda check: check.__name__)
def test_the_local_backend_conforms_with_users_of_jobs(check: Check, cluster: LocalHarness, isolation: str) -> None:
    skip_in_root(isolation)
    monkeypatched = cluster.preparation
    cluster.preparation = lambda **over: monkeypatched(**{"isolation": isolation, "uid_of": lambda _: ANN, **over})  # type: ignore[method-assign]
    cluster.crash()
    cluster.recover()
    check(cluster)


# --- where it is refused --------------------------------------------------------------------------------------------


def test_a_machine_says_why_jobs_cannot_be_users_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(setting: str = "2000000-2000009", isolation: str = "sandbox", folder: Path = tmp_path) -> str:
        return problem_of_job_users(setting, folder, isolation)

    assert problem("") == problem() == ""
    subordinate = tmp_path / "subuid"
    subordinate.write_text("ann:2000005:65536\n")
    monkeypatch.setattr(job_users, "SUBORDINATE", subordinate)
    assert problem() == (
        f"job_users = 2000000-2000009 has uids from 2000005 on, which containers of ann use ({subordinate}): "
        "choose uids that nobody has"
    )
    subordinate.unlink()
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.struct_passwd(("ann", "x", 2000003, 0, "", "", ""))])
    assert "uid 2000003 of the account ann: choose" in problem()
    monkeypatch.undo()
    (tmp_path / "closed" / "state").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    assert "other users cannot pass" in problem(isolation="none", folder=tmp_path / "closed" / "state")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert problem() == (
        "job_users = 2000000-2000009 needs root, which alone can start programs as other users, and this is uid 1000: "
        "run it as root, or remove job_users from the settings"
    )


def test_an_image_runs_as_the_user_in_podman_and_not_in_apptainer() -> None:
    rank = {"cpus": [], "env": {"HOME": "/w"}, "runs_as": {"uid": ANN, "groups": [44]}}
    image = {"command": ["podman"], "options": [], "name": "python", "folders": {}, "root": "/images"}
    launched = {"job_id": "j1", "generation": 1, "cwd": "/w", "argv": ["true"], "image": image, "ranks": [rank]}
    words = " ".join(in_container(launched, "0", rank)["argv"])
    assert f"--user {ANN}:{ANN} --security-opt no-new-privileges --group-add 44 " in words
    assert in_container(launched, "0", rank)["runs_as"] is None
    refused = missing_command({**launched, "image": {**image, "command": ["/usr/bin/apptainer"]}})
    assert refused.endswith("install Podman on its node")


def test_a_user_is_in_the_groups_of_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, group, mode in (("one", 44, 0o660), ("two", 45, 0o640), ("three", 0, 0o660)):
        (tmp_path / name).touch(mode)
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, 0, group)
    monkeypatch.setattr(sandbox_mounts, "device_nodes", lambda env: [str(each) for each in tmp_path.iterdir()])
    assert sandbox_mounts.device_groups({}) == [44]
