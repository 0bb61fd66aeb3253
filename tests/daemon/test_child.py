"""A scheduler in a process of its own: what it is made of, how it ends, and what is said of it."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gavel.config import Settings
from gavel.daemon.child import LONGEST_PAUSE_S, STEADY_S, Ends, Order, SchedulerProcess
from gavel.errors import BackendUnavailable

LIMIT_S = 60


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("gavel.daemon.scheduling", {"fastapi", "uvicorn", "jinja2", "cvxpy", "scipy"}),
        ("api.app", {"cvxpy", "scipy", "clarabel", "highspy"}),
        ("gavel.daemon.service", {"fastapi", "uvicorn", "cvxpy", "scipy"}),
    ],
)
def test_a_process_loads_only_what_its_own_part_is_made_of(module: str, forbidden: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert not forbidden & set(ran.stdout.split())


def test_pauses_double_up_to_a_minute_and_are_short_again_for_one_that_lived() -> None:
    ends = Ends()
    assert [ends.add("x", lived_s=0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert ends.add("x", lived_s=STEADY_S) == 1


def test_an_end_is_news_until_the_next_one_has_lived_for_a_minute() -> None:
    ends = Ends()
    assert ends.history(0.0) == ""
    ends.add("it ended with signal SIGKILL", lived_s=5.0)
    assert "signal SIGKILL" in ends.history(1e6), "however long nothing can be started"
    ends.start_again(1e6)
    assert "signal SIGKILL" in ends.history(1e6 + STEADY_S - 1)
    assert ends.history(1e6 + STEADY_S) == ""


def test_one_that_cannot_start_says_why_and_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "gavel.db").write_text("no database" * 1000)
    announced: list[str] = []
    before = psutil.Process().children()
    scheduler = SchedulerProcess(
        Order(settings=Settings(state_dir=tmp_path), url="http://127.0.0.1:1"),
        announce=announced.append,
        on_lead=announced.clear,
    )
    scheduler.begin()
    with pytest.raises(BackendUnavailable, match=r"gavel\.db cannot be opened"):
        scheduler.until_settled()
    scheduler.stop()
    assert not announced and psutil.Process().children() == before
