"""Children of ours: tied to their parent, limited, and told of in one way."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.child_processes import (
    THREAD_VARIABLES,
    exit_text,
    module_command,
    numeric_threads,
    reap,
    start_connected,
)

CHILD = "tests.child_program"


def until(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, "it did not come true in time"
        time.sleep(0.01)


@given(st.integers(1, signal.NSIG - 1) | st.integers(-255, 0))
def test_every_end_of_a_process_has_a_text(number: int) -> None:
    """Real-time signals too, most of which have no name."""
    text = exit_text(-number)
    assert text.startswith("exit code " if number <= 0 else "signal ")
    assert str(abs(number)) in text or signal.Signals[text.removeprefix("signal ")].value == number


def test_a_process_that_a_signal_without_a_name_ended_is_told_of() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 40)"])
    assert reap(process, within_s=60.0) == "signal 40"


def test_a_process_that_does_not_end_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert reap(process, within_s=0.1) == "signal SIGKILL"


def test_every_library_for_numbers_is_told_its_threads_and_nothing_else_is_set() -> None:
    assert numeric_threads(2) == dict.fromkeys(THREAD_VARIABLES, "2")
    assert {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"} <= {
        *numeric_threads(1)
    }


def test_a_connected_child_talks_over_its_own_socket_and_has_no_other_of_ours() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    process, connection = start_connected(CHILD, 1 << 30, stdout=subprocess.DEVNULL)
    connection.send("limits")
    core, memory, session, descriptors = connection.recv()
    assert (core, memory) == ((0, 0), (1 << 30, 1 << 30))
    assert session == process.pid and os.readlink(f"/proc/self/fd/{writer}") not in descriptors
    connection.close()
    assert reap(process, within_s=60.0) == "exit code 0"
    os.close(reader)
    os.close(writer)


def test_a_child_dies_with_its_parent() -> None:
    program = (
        "import sys, time\n"
        "from gavel.child_processes import start_connected\n"
        f"process, connection = start_connected({CHILD!r}, {1 << 30})\n"
        "connection.send('limits')\n"
        "connection.recv()\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_child_whose_parent_has_ended_already_ends_at_once() -> None:
    ran = subprocess.run(module_command(CHILD, 0, 1, 1 << 30), capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr.strip()) == (1, "the process that started this one has ended")


def test_one_place_starts_children_and_tells_how_they_ended() -> None:
    """No other file asks the kernel for the signal at a parent's death, or names the signals by itself."""
    own = ("prctl(", "PR_SET_", "setrlimit(", "signal.Signals(", "strsignal(", "_NUM_THREADS")
    violations = []
    for folder, _, files in os.walk("gavel"):
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".py") and path != "gavel/child_processes.py":
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                violations += [f"{path}: {each}" for each in own if each in text]
    assert violations == []


@pytest.mark.parametrize("heavy", ["subprocess", "multiprocessing", "resource"])
def test_the_module_is_quick_to_import(heavy: str) -> None:
    code = f"import sys; import gavel.child_processes; print({heavy!r} in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append('.'); {code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.strip() == "False"
