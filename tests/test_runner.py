"""The subprocess runner: answers, limits, crashes, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from gavel.errors import InvalidProblem, InvalidRequest, SolveFailed
from gavel.policies.inline import InlineRunner
from gavel.ports import PolicyRunner
from gavel.runner import MOST_FAILED_STARTS, SubprocessRunner
from tests.builders import a_problem
from tests.policies import odd_policies

ROOT = Path(__file__).parent.parent
PATIENCE_S = 60.0
MEMORY_BYTES = 2 << 30
PROBLEM = a_problem([[1.0, 2.0], [2.0, 1.0]], [1, 1])


@pytest.fixture(scope="module", autouse=True)
def the_child_can_import_the_tests() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


@pytest.fixture(scope="module")
def runner() -> Iterator[SubprocessRunner]:
    """One for the tests of this module, since a child takes long to start; who wants a new one closes it first."""
    runner = SubprocessRunner(MEMORY_BYTES, load=odd_policies.load)
    yield runner
    runner.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for `condition`, with a limit."""
    gives_up_at_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < gives_up_at_s, "waited in vain"
        time.sleep(0.01)


def children() -> list[psutil.Process]:
    """This process's solver subprocesses."""
    own = psutil.Process().children()
    return [child for child in own if child.status() != psutil.STATUS_ZOMBIE and "gavel.runner" in child.cmdline()]


@pytest.mark.parametrize("kind", ["inline", "subprocess"])
def test_both_runners_answer_as_the_policy_does(kind: str) -> None:
    runner: PolicyRunner = InlineRunner() if kind == "inline" else SubprocessRunner(MEMORY_BYTES)
    until(runner.warm)
    allocation = runner.allocate("max_min_fairness", PROBLEM, PATIENCE_S)
    assert allocation.time_fraction == pytest.approx(np.asarray([[0.0, 1.0], [1.0, 0.0]]), abs=1e-6)
    with pytest.raises(InvalidRequest, match="there is no 'guess'"):
        runner.allocate("guess", PROBLEM, PATIENCE_S)
    with pytest.raises(InvalidProblem) as refusal:
        runner.allocate("fifo", a_problem([[np.nan]], [1]), PATIENCE_S)
    assert refusal.value.field == "throughput_steps_per_s[j0]"
    runner.close()


@pytest.mark.full
def test_warming_returns_at_once_and_says_when_it_is_done(runner: SubprocessRunner) -> None:
    runner.close()
    assert runner.warm() is False
    until(runner.warm)
    assert len(children()) == 1


def test_a_solve_that_hangs_is_ended_and_the_next_one_works(runner: SubprocessRunner) -> None:
    until(runner.warm)
    (first,) = children()
    with pytest.raises(SolveFailed, match=r"^hang took longer than 0\.2 s and was ended"):
        runner.allocate("hang", PROBLEM, 0.2)
    assert not first.is_running()
    assert runner.warm() is False
    assert runner.allocate("fifo", PROBLEM, PATIENCE_S).policy == "fifo"


def test_a_crash_is_a_failed_solve_that_names_the_signal(runner: SubprocessRunner) -> None:
    until(runner.warm)
    with pytest.raises(SolveFailed, match="SIGABRT"):
        runner.allocate("crash", PROBLEM, PATIENCE_S)
    assert runner.allocate("fifo", PROBLEM, PATIENCE_S).policy == "fifo"


@pytest.mark.full
def test_a_child_that_somebody_killed_is_replaced(runner: SubprocessRunner) -> None:
    until(runner.warm)
    children()[0].kill()
    with pytest.raises(SolveFailed, match="SIGKILL"):
        runner.allocate("fifo", PROBLEM, PATIENCE_S)
    until(runner.warm)
    assert runner.allocate("fifo", PROBLEM, PATIENCE_S).policy == "fifo"


def test_a_solve_beyond_the_memory_limit_fails_alone(runner: SubprocessRunner) -> None:
    with pytest.raises(SolveFailed, match="more memory"):
        runner.allocate("swallow_memory", PROBLEM, PATIENCE_S)
    assert runner.allocate("fifo", PROBLEM, PATIENCE_S).policy == "fifo"


def test_a_policy_that_raises_anything_is_a_failed_solve(runner: SubprocessRunner) -> None:
    with pytest.raises(SolveFailed, match="ZeroDivisionError: odd"):
        runner.allocate("raise", PROBLEM, PATIENCE_S)


def test_a_child_that_never_gets_ready_is_not_started_for_ever(runner: SubprocessRunner) -> None:
    runner.close()
    runner = SubprocessRunner(MEMORY_BYTES, load=odd_policies.load_nothing)
    for _ in range(MOST_FAILED_STARTS):
        with pytest.raises(SolveFailed, match="did not start: exit code 1"):
            runner.allocate("fifo", PROBLEM, PATIENCE_S)
    assert runner.warm() is True  # it can be asked: the answer is the error
    assert not children()
    with pytest.raises(SolveFailed, match="did not start"):
        runner.allocate("fifo", PROBLEM, PATIENCE_S)
    runner.close()


@pytest.mark.full
def test_a_solve_whose_time_is_up_before_the_child_is_ready_fails_and_leaves_the_child_to_warm(
    runner: SubprocessRunner,
) -> None:
    runner.close()
    with pytest.raises(SolveFailed, match="not ready yet"):
        runner.allocate("fifo", PROBLEM, 0.0)
    until(runner.warm)


def test_the_child_holds_no_socket_of_its_parent_and_one_thread_for_linear_algebra(runner: SubprocessRunner) -> None:
    runner.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.set_inheritable(server.fileno(), True)
        until(runner.warm)
        (child,) = children()
        links = [os.readlink(f"/proc/{child.pid}/fd/{name}") for name in os.listdir(f"/proc/{child.pid}/fd")]
        assert os.readlink(f"/proc/self/fd/{server.fileno()}") not in links
    assert child.environ()["OPENBLAS_NUM_THREADS"] == "1"


def test_closing_ends_the_child_even_while_it_is_starting(runner: SubprocessRunner) -> None:
    runner.close()
    runner.warm()
    runner.close()
    assert not children()


@pytest.mark.full
def test_the_child_dies_with_a_parent_that_is_killed_in_the_middle_of_a_solve() -> None:
    program = (
        "from gavel.runner import SubprocessRunner\n"
        "from tests.policies import odd_policies\n"
        "from tests.test_runner import PROBLEM, children, until\n"
        "runner = SubprocessRunner(2 << 30, load=odd_policies.load)\n"
        "until(runner.warm)\n"
        "print(children()[0].pid, flush=True)\n"
        "runner.allocate('hang', PROBLEM, 600.0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
