"""The demo of the autopilot: its real runs on this machine, its replays, its picture, and that it leaves nothing."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from gavel.autopilot import goals
from gavel.demo.autopilot import CANDIDATES, GOAL, compared
from gavel.demo.autopilot.picture import drawn
from gavel.demo.autopilot.replays import real_cost, replayed_cost, start_s, switches_of
from gavel.demo.autopilot.runs import Choice, Ran, ran
from gavel.demo.autopilot.show import checks
from gavel.demo.autopilot.workload import PHASE_S, STEPS_PER_S, TaskSet, phase_starts_s, sets
from gavel.demo.service import wait_until
from gavel.types import Job, JobState
from gavel.types.autopilot import AutopilotDecision, AutopilotMode
from tests.builders import a_cluster, a_spec

FIFO = Choice(title="fifo, fixed", policy="fifo")
LIMIT_S = 240.0


def a_job(of: TaskSet, place: int) -> Job:
    at_s = 1000.0 + of.arrives_s + place / 1000
    spec = a_spec(
        user=of.user, tier="default", total_steps=of.steps, preemptible=False,
        throughput_steps_per_s={"fast": STEPS_PER_S, "slow": STEPS_PER_S},
    )  # fmt: skip
    done = {"state": JobState.COMPLETED, "finished_at_s": at_s + of.task_s + 1.0, "attempt": 1}
    return Job(id=f"{of.user}-{place}", spec=spec, submitted_at_s=at_s, **done)  # type: ignore[arg-type]


def a_run(*decisions: AutopilotDecision, of: tuple[TaskSet, ...] = ()) -> Ran:
    """A run of the demo's sets in which each task started at once, and a start took half a second."""
    jobs = tuple(a_job(each, place) for each in of or sets() for place in range(each.tasks))
    return Ran(
        choice=replace(FIFO, title="autopilot") if decisions else FIFO,
        jobs=jobs,
        launched_at_s={job.id: job.submitted_at_s + 0.5 for job in jobs},
        cluster=a_cluster(fast=2, slow=2),
        decisions=decisions,
        same=tuple(True for _ in decisions),
        left=(),
    )


def a_switch(at_s: float, chosen: str) -> AutopilotDecision:
    return AutopilotDecision(
        number=0, at_s=1000.0 + at_s, mode=AutopilotMode.AUTO, goal=GOAL, seed=0, incumbent="fifo", chosen=chosen,
        reason="it gains", is_followed=True,
    )  # fmt: skip


def test_its_workload_has_three_phases_and_a_goal_counts_a_set_as_a_job() -> None:
    assert phase_starts_s(sets()) == (0.0, PHASE_S, 2 * PHASE_S)
    assert len(real_cost(goals.read(GOAL), a_run()).of_sets) == len(sets())


def test_the_compositions_differ_on_its_workload() -> None:
    """Else there would be nothing to choose: in its middle phase some cost a tenth less than the default."""
    run, goal = a_run(of=tuple(each for each in sets() if PHASE_S <= each.arrives_s < 2 * PHASE_S)), goals.read(GOAL)
    costs = {text: replayed_cost(goal, run, [(0.0, text)]).mean_s for text in CANDIDATES}
    assert min(costs.values()) < 0.9 * costs["fifo"], costs


@pytest.mark.full
def test_a_replay_of_a_switch_is_between_the_replays_of_what_was_in_force() -> None:
    goal, sjf = goals.read(GOAL), "least_remaining_work?work_of=user"
    flown = a_run(a_switch(PHASE_S, sjf))
    assert start_s(flown) == pytest.approx(0.5)
    assert switches_of(flown) == [(0.0, "fifo"), (pytest.approx(PHASE_S, abs=0.1), sjf)]
    costs = compared(flown, a_run())
    assert costs["fifo"].mean_s == replayed_cost(goal, flown, [(0.0, "fifo"), (1e9, sjf)]).mean_s
    assert costs[sjf].mean_s <= costs["the autopilot's switches"].mean_s <= costs["fifo"].mean_s
    assert [title for title, cost in costs.items() if cost.is_real] == ["autopilot", "fifo, fixed"]
    picture = ElementTree.fromstring(drawn(costs, switches_of(flown), phase_starts_s(sets())))
    assert len(picture.findall(".//{*}polyline")) == len(costs)


def test_a_check_fails_if_a_task_was_started_twice_or_a_process_is_left() -> None:
    flown, fixed = a_run(a_switch(PHASE_S, "fifo")), a_run()
    count = len(fixed.jobs)
    assert all(holds for holds, _ in checks(flown, fixed, count))
    twice = replace(fixed, jobs=(replace(fixed.jobs[0], attempt=2), *fixed.jobs[1:]))
    failing = {
        "were started more than once": (flown, twice),
        "no process is left; pid 7": (flown, replace(fixed, left=("pid 7",))),
        "0 switches": (replace(flown, decisions=()), fixed),
        "are the same": (replace(flown, same=(False,)), fixed),
    }
    for words, pair in failing.items():
        assert [words in sentence for holds, sentence in checks(*pair, count) if not holds] == [True], words


@pytest.mark.full
@pytest.mark.timeout(400)
def test_tasks_run_on_real_processes_one_after_the_other_each_once(tmp_path: Path) -> None:
    of = tuple(TaskSet(user=f"set-{place}", arrives_s=place * 1.0, tasks=6, task_s=0.5) for place in range(2))
    lines: list[str] = []
    run = ran(FIFO, of, tmp_path / "state", time.monotonic() + LIMIT_S, lines.append)
    assert [(job.state, job.attempt, job.preemptions) for job in run.jobs] == [(JobState.COMPLETED, 1, 0)] * 12
    assert run.left == () and run.decisions == () and lines
    assert real_cost(goals.read(GOAL), run).mean_s >= 0.5


@pytest.mark.full
@pytest.mark.small("serve.out")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("begun", ["serve.out", "service.json"])
def test_a_demo_that_is_told_to_end_stops_its_service(tmp_path: Path, begun: str) -> None:
    """While the service starts, and while it serves."""
    command = [sys.executable, "-m", "gavel.cli", "demo", "--autopilot"]
    demo = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    state = tmp_path / ".demo-autopilot" / "autopilot"
    try:
        assert wait_until((state / begun).exists, LIMIT_S)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(LIMIT_S) != 0
    finally:
        demo.kill()
    assert [
        each.pid for each in psutil.process_iter(["cwd"]) if (each.info["cwd"] or "").startswith(f"{tmp_path}")
    ] == []
