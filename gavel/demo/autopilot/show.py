"""What the demo of the autopilot prints at its end: who cost what, where that is from, the switches, and checks."""

from collections.abc import Iterator, Mapping

from rich.table import Table

from gavel.demo.autopilot.replays import Cost, start_s
from gavel.demo.autopilot.runs import Ran
from gavel.types import JobState

REAL, REPLAY = "real run", "replay of the autopilot's tasks"


def costs_table(costs: Mapping[str, Cost], best: float) -> Table:
    """A row for each run and replay: the mean seconds of a set, and how far replays are above the best fixed one."""
    table = Table(title="Mean seconds from the arrival of a set to the end of its last task", title_justify="left")
    table.add_column("composition")
    table.add_column("where this is from")
    for column in ("mean s", "over the best fixed replay"):
        table.add_column(column, justify="right")
    for title, cost in costs.items():
        over = "" if cost.is_real else f"{100 * (cost.mean_s / best - 1):+.1f} %"
        table.add_row(title, REAL if cost.is_real else REPLAY, f"{cost.mean_s:.2f}", over)
    return table


def switches_table(ran: Ran) -> Table:
    """A row for each switch, with its reason."""
    table = Table(title="Switches of the autopilot", title_justify="left")
    table.add_column("at s", justify="right")
    for column in ("from", "to", "why"):
        table.add_column(column)
    for each in ran.switches:
        at_s = each.at_s - ran.jobs[0].submitted_at_s
        table.add_row(f"{at_s:.0f}", each.incumbent, each.chosen, each.reason)
    return table


def checks(flown: Ran, fixed: Ran, submitted: int) -> Iterator[tuple[bool, str]]:
    """Yield each check as (whether it holds, a sentence with its figures)."""
    for ran in (flown, fixed):
        done = sum(job.state is JobState.COMPLETED for job in ran.jobs)
        yield done == len(ran.jobs) == submitted, f"{ran.choice.title}: {done} of {submitted} tasks completed"
        preempted = sum(job.preemptions > 0 or job.attempt > 1 for job in ran.jobs)
        yield not preempted, f"{ran.choice.title}: {preempted} tasks were started more than once"
        yield not ran.left, f"{ran.choice.title}: no process is left" + "".join(f"; {each}" for each in ran.left)
    yield (
        bool(flown.switches),
        f"the autopilot made {len(flown.decisions)} decisions and {len(flown.switches)} switches",
    )
    yield not fixed.decisions, f"without it there were {len(fixed.decisions)} decisions"
    again = f"{sum(flown.same)} of {len(flown.same)} decisions are the same when they are made again"
    yield all(flown.same) and bool(flown.same), again


def notes(flown: Ran, fixed: Ran, costs: Mapping[str, Cost]) -> Iterator[str]:
    """Yield what is needed to read the table."""
    real, replayed = costs[fixed.choice.title].mean_s, costs[fixed.choice.policy].mean_s
    yield (
        f"A start cost {start_s(flown):.2f} s in the run with the autopilot and {start_s(fixed):.2f} s in the other "
        "(medians); replays count it as in the first."
    )
    yield (
        f"{fixed.choice.policy} took {real:.2f} s on real processes and {replayed:.2f} s in the replay: so far replays "
        "and real runs are from each other."
    )
    failed = sum(bool(each.failure) for each in flown.decisions)
    cpu_s = sum(each.cpu_s for each in flown.decisions)
    yield f"The decisions took {cpu_s:.1f} CPU seconds together; {failed} of them failed."
