"""One supervisor alone, with real ranks: what docs/gang-protocol.md guarantees."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import control_groups, processes, supervisor
from gavel.backends.logs import read_log
from tests.backends.clusters import eventually

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PRINTED_BYTES = 10**9 if IS_FULL else 2 * 10**8
PATH = "/usr/local/bin:/usr/bin:/bin"


class Gang:
    """A gang directory and the supervisor that works on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "gangs" / "j1" / "1"
        self.directory.mkdir(parents=True)
        self.log = folder / "j1.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *argv: str, ranks: int = 1, lasts_s: float = 60.0, **over: Any) -> None:
        """Start a supervisor over these ranks."""
        launch = {
            "argv": argv,
            "cwd": str(self.folder),
            "ranks": [
                {"cpus": over.pop("cpus", []), "env": {"PATH": PATH, "RANK": str(rank), **over.pop("env", {})}}
                for rank in range(ranks)
            ],
            "lease_expires_boottime_s": supervisor.boottime_s() + lasts_s,
            "lease_grace_s": 0.3,
            "log_path": str(self.log),
            "log_bytes": 1 << 16,
        }
        (self.directory / "launch.json").write_text(json.dumps(launch | over))
        program = [sys.executable, "-I", "-S", "-X", "utf8", supervisor.__file__, str(self.directory)]
        self.process = subprocess.Popen(program)

    def lease(self, lasts_s: float = 60.0, *, stop: bool = False) -> None:
        """Say how long it may run from now on."""
        lease = {"expires_boottime_s": supervisor.boottime_s() + lasts_s, "stop": stop}
        supervisor.write_json(str(self.directory / "lease.json"), lease)

    def pids(self) -> list[int]:
        """The ranks, once all of them execute."""
        eventually((self.directory / "started.json").exists)
        return list(self.read("started.json")["pids"])

    def exit(self) -> dict[str, Any]:
        """How it ended, once it has."""
        assert self.process is not None
        assert self.process.wait(timeout=30) == 0
        return self.read("exit.json")

    def says(self, text: str) -> None:
        """Returns once the log holds the text."""
        eventually(lambda: text.encode() in self._logged())

    def _logged(self) -> bytes:
        """What its log holds; between two files of a log that goes round there is none for a moment."""
        try:
            return self.log.read_bytes()
        except FileNotFoundError:
            return b""

    def read(self, name: str) -> dict[str, Any]:
        """One of its files."""
        return supervisor.read_json(str(self.directory / name))

    def peak_kib(self) -> int:
        """The most memory the supervisor has had so far; 0 once it is gone."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    def close(self) -> None:
        """Nothing of it runs any more."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
        control_groups.remove_groups(control_groups.prefix_of(str(self.directory)))


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    made.close()


def is_alive(pid: int) -> bool:
    return supervisor.start_time(pid) is not None


def shell(script: str) -> tuple[str, ...]:
    return ("bash", "-c", script)


# --- alone ------------------------------------------------------------------------------------------------------


def test_it_loads_the_standard_library_and_its_own_parts_only() -> None:
    root = str(Path(supervisor.__file__).parents[2])
    show = "import gavel.backends.supervisor; print(sorted(name for name in sys.modules if name.startswith('gavel.b')))"
    code = f"import sys; sys.path.append({root!r}); {show}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    names = (
        "control_groups",
        "gang_lease",
        "gang_readiness",
        "job_folder",
        "lease_rules",
        "machine",
        "meeting",
        "memory_watch",
        "output",
        "output_quota",
        "processes",
        "program_start",
        "sandbox_view",
        "supervisor",
        "unix_users",
        "utilization_sampler",
    )
    parts = ["gavel.backends", *(f"gavel.backends.{name}" for name in names)]
    assert done.stdout == f"{parts}\n"


# --- starting ---------------------------------------------------------------------------------------------------


@settings(max_examples=100 if IS_FULL else 5)
@given(words=st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), max_size=4))
def test_arguments_arrive_byte_for_byte(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    gang = Gang(tmp_path_factory.mktemp("argv"))
    show = "import os, sys; open('argv', 'wb').write(open('/proc/self/cmdline', 'rb').read())"
    gang.start(sys.executable, "-I", "-S", "-c", show, *words)
    assert gang.exit()["exit_code"] == 0
    arrived = (gang.folder / "argv").read_bytes().split(b"\0")[:-1]
    assert arrived[5:] == [word.encode() for word in words]


def test_a_rank_gets_its_environment_and_nothing_else(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "do not tell")
    gang.start("env", "-0", env={"ONE": "a\nb", "ÜMLAUT": "ü"})
    gang.exit()
    seen = dict(line.split("=", 1) for line in gang.log.read_text().split("\0") if line)
    assert seen == {"PATH": PATH, "RANK": "0", "ONE": "a\nb", "ÜMLAUT": "ü"}


def test_a_rank_reads_nothing_and_is_pinned_to_its_cpus(gang: Gang) -> None:
    cpu = max(os.sched_getaffinity(0))
    gang.start(*shell("cat; grep Cpus_allowed_list /proc/self/status"), cpus=[cpu])
    assert gang.exit()["log_tail"].split() == ["Cpus_allowed_list:", str(cpu)]


@pytest.mark.parametrize(
    ("program", "reason"),
    [("no-such-program", "No such file"), ("./plain.txt", "Permission denied"), ("./garbage", "Exec format error")],
)
def test_a_program_that_cannot_run_is_named(gang: Gang, program: str, reason: str) -> None:
    (gang.folder / "plain.txt").write_text("no program")
    (gang.folder / "garbage").write_bytes(b"\x7fno")
    (gang.folder / "garbage").chmod(0o700)
    gang.start(program, ranks=3)
    end = gang.exit()
    assert (end["outcome"], end["exit_code"]) == ("not_started", 127)
    assert program in end["message"]
    assert reason in end["message"]


def test_a_missing_working_directory_is_named(gang: Gang) -> None:
    gang.start("true", cwd="/no/such/folder")
    assert "/no/such/folder" in gang.exit()["message"]


def test_a_supervisor_that_comes_after_its_lease_starts_nothing(gang: Gang) -> None:
    gang.lease(stop=True)
    gang.start("touch", "started")
    assert gang.exit()["outcome"] == "preempted"
    assert not (gang.folder / "started").exists()


# --- ending -----------------------------------------------------------------------------------------------------

ON_TERM = "trap '{}' TERM; echo ready; while true; do sleep 0.01; done"


@pytest.mark.parametrize(
    ("script", "outcome", "exit_code"),
    [
        (ON_TERM.format("exit 75"), "preempted", 75),
        (ON_TERM.format("exit 1"), "preempted", 1),  # torn out of its work, so it may well fail
        (ON_TERM.format("exit 0"), "exited", 0),
        ("echo ready; exec sleep 60", "preempted", -signal.SIGTERM),
        (ON_TERM.format(":"), "preempted", -signal.SIGKILL),
    ],
)
def test_an_end_after_a_stop_is_a_preemption_unless_it_is_clean(
    gang: Gang, script: str, outcome: str, exit_code: int
) -> None:
    is_killed = exit_code == -signal.SIGKILL  # the others have all the time they need
    gang.start(*shell(script), lease_grace_s=0.3 if is_killed else 30.0)
    gang.says("ready")
    gang.lease(stop=True)
    end = gang.exit()
    assert (end["outcome"], end["exit_code"], end["ended_by"]) == (outcome, exit_code, "stop")


@pytest.mark.parametrize(
    ("script", "exit_code"), [("exit 0", 0), ("exit 3", 3), ("exit 75", 75), ("kill -9 $$", -signal.SIGKILL)]
)
def test_an_end_in_mid_lease_is_the_programs_own(gang: Gang, script: str, exit_code: int) -> None:
    gang.start(*shell(script))
    end = gang.exit()
    assert (end["outcome"], end["exit_code"], end["ended_by"]) == ("exited", exit_code, "")


def test_75_after_the_lease_is_a_preemption_without_any_signal(gang: Gang) -> None:
    script = "trap '' TERM; echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 75"
    gang.start(*shell(script), lease_grace_s=30.0)
    gang.says("ready")
    gang.lease(0.1)
    eventually(lambda: supervisor.boottime_s() > gang.read("lease.json")["expires_boottime_s"])
    (gang.folder / "go").touch()
    end = gang.exit()
    assert (end["outcome"], end["exit_code"], end["ended_by"]) == ("preempted", 75, "lease")


def test_an_extended_lease_lets_the_gang_go_on(gang: Gang) -> None:
    gang.start(*shell("while [ ! -e go ]; do sleep 0.01; done"), lasts_s=0.5)
    gang.lease(60.0)
    eventually(lambda: supervisor.boottime_s() > gang.read("launch.json")["lease_expires_boottime_s"] + 0.1)
    (gang.folder / "go").touch()
    assert gang.exit()["outcome"] == "exited"


def test_a_rank_that_fails_takes_the_gang_with_it(gang: Gang) -> None:
    gang.start(*shell("[ $RANK = 1 ] && exit 4; exec sleep 60"), ranks=3)
    end = gang.exit()
    assert (end["outcome"], end["exit_code"], end["message"]) == ("exited", 4, "rank 1 ended with exit code 4")


def test_a_rank_that_is_done_waits_for_the_others(gang: Gang) -> None:
    gang.start(*shell("[ $RANK = 0 ] && exit 0; while [ ! -e go ]; do sleep 0.01; done"), ranks=2)
    first, _ = gang.pids()
    eventually(lambda: not is_alive(first))
    assert not (gang.directory / "exit.json").exists()
    (gang.folder / "go").touch()
    assert gang.exit()["exit_code"] == 0


def test_whoever_outlives_the_ranks_is_killed(gang: Gang) -> None:
    daemon = "(trap '' TERM HUP; setsid bash -c 'trap \"\" TERM; echo $$ > daemon; sleep 60') & "
    gang.start(*shell(daemon + "while [ ! -s daemon ]; do sleep 0.01; done"))
    assert gang.exit()["exit_code"] == 0
    assert not is_alive(int((gang.folder / "daemon").read_text()))


def test_a_rank_that_signals_its_group_does_not_reach_the_supervisor(gang: Gang) -> None:
    gang.start(*shell("kill -TERM 0; sleep 60"))
    assert (gang.exit()["outcome"], gang.exit()["exit_code"]) == ("exited", -signal.SIGTERM)


def test_ranks_die_with_their_supervisor(gang: Gang) -> None:
    gang.start("sleep", "60", ranks=2)
    pids = gang.pids()
    assert gang.process is not None
    gang.process.kill()
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_a_supervisor_asked_to_end_stops_its_gang_in_good_order(gang: Gang) -> None:
    gang.start(*shell(ON_TERM.format("exit 75")))
    gang.says("ready")
    assert gang.process is not None
    gang.process.terminate()
    assert gang.exit()["outcome"] == "preempted"


# --- output -----------------------------------------------------------------------------------------------------


def test_endless_output_stays_within_its_bound(gang: Gang) -> None:
    gang.start(*shell(f"yes 0123456789 | head -c {PRINTED_BYTES}; echo; echo last words"), log_bytes=1 << 20)
    most_kib = 0

    def is_done() -> bool:
        nonlocal most_kib
        most_kib = max(most_kib, gang.peak_kib())
        return (gang.directory / "exit.json").exists()

    eventually(is_done, limit_s=100)
    gang.exit()
    files = [gang.log, gang.log.with_name(gang.log.name + ".1")]
    assert sum(file.stat().st_size for file in files) <= 1 << 20
    assert 1_000 < most_kib < 40_000
    assert gang.read("exit.json")["log_tail"].endswith("last words")
    newest, end = read_log(gang.log, 0, 1 << 21)
    assert end == PRINTED_BYTES + len("\nlast words\n")
    assert newest.endswith(b"last words\n")


def test_a_flood_of_output_does_not_delay_the_end_of_the_lease(gang: Gang) -> None:
    gang.start(*shell("trap '' TERM; yes"))
    gang.says("y")
    gang.lease(0.1)
    end = gang.exit()
    assert end["outcome"] == "preempted"
    lease_end_s = gang.read("lease.json")["expires_boottime_s"]
    assert end["boottime_s"] >= lease_end_s + 0.3


def test_lines_say_their_rank_when_there_are_several(gang: Gang) -> None:
    gang.start(*shell("printf 'one\\ntwo'"), ranks=2)
    gang.exit()
    assert sorted(gang.log.read_text().splitlines()) == ["[0] one", "[0] two", "[1] one", "[1] two"]


def test_a_line_without_end_is_cut(gang: Gang) -> None:
    gang.start(*shell("head -c 300000 /dev/zero | tr '\\0' x"), ranks=2, log_bytes=1 << 21)
    gang.exit()
    lines = gang.log.read_text().splitlines()
    assert max(len(line) for line in lines) <= processes.LINE_BYTES + supervisor.CHUNK_BYTES + 4
    assert sum(line.count("x") for line in lines) == 600_000


def test_the_tail_holds_the_last_lines_only(gang: Gang) -> None:
    gang.start(*shell("seq 1000; head -c 3 /dev/urandom > /dev/null"))
    assert gang.exit()["log_tail"].splitlines() == [str(number) for number in range(981, 1001)]


def test_files_are_this_users_only(gang: Gang) -> None:
    gang.start("true")
    gang.exit()
    assert stat.S_IMODE(gang.log.stat().st_mode) == 0o600
