"""The demo of the autopilot: tasks on real processes, whose nature changes twice, and what it brought in hindsight.

Two runs are real, one after the other: under the autopilot, and with the composition that it began with, fixed. What
each other composition would have cost is replayed, from the tasks of the first run; the table says which is which.
"""

import shutil
import time
from pathlib import Path

from rich.console import Console

from gavel.autopilot import goals
from gavel.demo import show as demo_show
from gavel.demo.autopilot import show
from gavel.demo.autopilot.picture import drawn
from gavel.demo.autopilot.replays import Cost, real_cost, replayed_cost, switches_of
from gavel.demo.autopilot.runs import Choice, Ran, ran
from gavel.demo.autopilot.workload import TaskSet, phase_starts_s, sets

STATE_DIR = Path(".demo-autopilot")
PICTURE = "autopilot.svg"
LIMIT_S = 300.0
RUN_LIMIT_S = 125.0  # of each real run: then it is cut off, and the checks say so
PLAIN_WIDTH = 140  # columns, where the output is no terminal that would know
GOAL = "mean_jct,per=user"
DEFAULT = "fifo"  # of many frameworks
SERVICE_DEFAULT = "hierarchical"
CANDIDATES = (
    DEFAULT,
    "dominant_resource_fairness?among=users",
    "fair_by_memory?among=users",
    "least_remaining_work?work_of=user",
)


def main(state_dir: Path = STATE_DIR, of: tuple[TaskSet, ...] = ()) -> int:
    """Run the demo in a folder of the working directory; 0 only if every check held. `of`: its sets, if not its own."""
    console, began_s, workload = _console(), time.monotonic(), of or sets()
    console.rule("[bold]Gavel: a scheduler that composes itself")
    shutil.rmtree(state_dir, ignore_errors=True)
    choices = (
        Choice(title="autopilot", policy=DEFAULT, goal=GOAL, candidates=CANDIDATES),
        Choice(title=f"{DEFAULT}, fixed", policy=DEFAULT),
    )
    flown, fixed = (_ran(console, choice, workload, state_dir) for choice in choices)
    return _conclude(console, flown, fixed, workload, state_dir, began_s)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _ran(console: Console, choice: Choice, workload: tuple[TaskSet, ...], state_dir: Path) -> Ran:
    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    return ran(choice, workload, state_dir / choice.title.split(",")[0], time.monotonic() + RUN_LIMIT_S, tell)


def _conclude(
    console: Console, flown: Ran, fixed: Ran, workload: tuple[TaskSet, ...], state_dir: Path, began_s: float
) -> int:
    """Print table, picture and checks; return the exit code."""
    checks = [*show.checks(flown, fixed, sum(each.tasks for each in workload))]
    if all(holds for holds, _ in checks):  # else there is nothing to compare
        costs = compared(flown, fixed)
        best = min(costs[each].mean_s for each in (*CANDIDATES, SERVICE_DEFAULT))
        console.print(show.costs_table(costs, best))
        console.print(show.switches_table(flown))
        for note in show.notes(flown, fixed, costs):
            console.print(note, markup=False, highlight=False)
        picture = state_dir / PICTURE
        picture.write_text(drawn(costs, switches_of(flown), phase_starts_s(workload)), encoding="utf-8")
        console.print(f"The picture: {picture}", markup=False, highlight=False)
    elapsed_s = time.monotonic() - began_s
    checks.append((elapsed_s < LIMIT_S, f"{elapsed_s:.0f} s in all, of {LIMIT_S:.0f} s allowed"))
    demo_show.print_checks(checks, console)
    return 0 if all(holds for holds, _ in checks) else 1


def compared(flown: Ran, fixed: Ran) -> dict[str, Cost]:
    """Return what each real run cost, and what replays of the first one say of its switches and of each composition."""
    goal = goals.read(GOAL)
    real = {each.choice.title: real_cost(goal, each) for each in (flown, fixed)}
    replays = {text: replayed_cost(goal, flown, [(0.0, text)]) for text in (*CANDIDATES, SERVICE_DEFAULT)}
    return {**real, "the autopilot's switches": replayed_cost(goal, flown, switches_of(flown)), **replays}
