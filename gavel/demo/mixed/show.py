"""What the demo of mixed work prints at its end: each piece of the curve, the trainings, and checks."""

import statistics
from collections.abc import Iterator, Sequence

from rich.table import Table

from gavel.demo.mixed.clients import Asked
from gavel.demo.mixed.runs import Ran, Sample
from gavel.demo.mixed.workload import piece_at

SETTLED_PART = 0.75  # of a piece: what comes later is what follows from it


def pieces_table(run: Ran) -> Table:
    """A row for each piece of the curve: requests and how long answers took, replicas, and workers that trained."""
    table = Table(title="The service, and what it leaves to training", title_justify="left")
    for column in ("from s", "requests/s", "asked", "failed", "median ms", "99 % ms", "replicas", "workers training"):
        table.add_column(column, justify="right")
    from_s = 0.0
    for number, piece in enumerate(run.curve):
        asked = _asked_in(run, number)
        settled = _settled(run, number)
        table.add_row(
            f"{from_s:.0f}",
            f"{piece.requests_per_s:g}",
            str(len(asked)),
            str(sum(bool(each.failure) for each in asked)),
            _milliseconds([each.took_s for each in asked], 0.5),
            _milliseconds([each.took_s for each in asked], 0.99),
            f"{settled[-1].ready if settled else 0} of {piece.replicas}",
            f"{statistics.mean(each.trains for each in settled):.1f}" if settled else "",
        )
        from_s += piece.lasts_s
    return table


def trainings_table(run: Ran) -> Table:
    """A row for each training: how long it took, and how often it made room."""
    table = Table(title="The trainings", title_justify="left")
    table.add_column("job")
    for column in ("state", "steps", "preemptions", "s from submission to end"):
        table.add_column(column, justify="right")
    for each in sorted(run.trained, key=lambda each: each["submitted_at_s"]):
        jct = "" if each["jct_s"] is None else f"{each['jct_s']:.0f}"
        steps = f"{each['steps_done']}/{each['total_steps']}"
        table.add_row(each["name"], each["state"].lower(), steps, str(each["preemptions"]), jct)
    return table


def _asked_in(run: Ran, number: int) -> list[Asked]:
    return [each for each in run.asked if piece_at(run.curve, each.at_s) == number]


def _settled(run: Ran, number: int) -> list[Sample]:
    """The samples at the end of a piece, when what follows from it is there."""
    from_s = sum(each.lasts_s for each in run.curve[:number]) + SETTLED_PART * run.curve[number].lasts_s
    return [each for each in run.in_piece(number) if each.at_s >= from_s]


def _milliseconds(took_s: Sequence[float], part: float) -> str:
    ordered = sorted(took_s)
    return f"{ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000:.0f}" if ordered else ""


def checks(run: Ran, submitted: int) -> Iterator[tuple[bool, str]]:
    """Yield each check as (whether it holds, a sentence with its figures)."""
    failures = [each.failure for each in run.asked if each.failure]
    first = f"; the first: {failures[0]}" if failures else ""
    is_asked = bool(run.asked) and run.rounds > 0
    failed = f"{len(failures)} of {len(run.asked)} requests failed in {run.rounds} rounds"
    yield is_asked and not failures, failed + first
    at_end = [settled[-1].ready if (settled := _settled(run, number)) else 0 for number in range(len(run.curve))]
    needed = [each.replicas for each in run.curve]
    yield at_end == needed, f"replicas follow the demand: {_listed(at_end)}, needed are {_listed(needed)}"
    is_there = (run.session["state"], run.session["attempt"]) == ("RUNNING", 1)
    kept = f"the session was preempted {run.session['preemptions']} times and started {run.session['attempt']} times"
    yield is_there and run.session["preemptions"] == 0, kept
    seen = f"it was seen {run.pages} times through its forwarded port, and {len(run.page_failures)} times not"
    yield run.pages > 0 and not run.page_failures, seen + "".join(f"; {each}" for each in run.page_failures[:1])
    done = [each for each in run.trained if each["state"] == "COMPLETED" and each["steps_done"] == each["total_steps"]]
    yield len(done) == len(run.trained) == submitted, f"{len(done)} of {submitted} trainings did all their steps"
    yield _makes_room(run)
    yield not run.left, "no process is left" + "".join(f"; {each}" for each in run.left)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


def _makes_room(run: Ran) -> tuple[bool, str]:
    """Whether more workers train in the first valley than at the peak, and in the one after it again."""
    demands = [each.requests_per_s for each in run.curve]
    first, peak = (demands.index(extreme(demands)) for extreme in (min, max))
    valley, busy = _settled(run, first), _settled(run, peak)
    if not valley or not busy:
        return False, "the run ended before its peak"
    more, fewer = (statistics.mean(each.trains for each in part) for part in (valley, busy))
    later = [each.trains for number in range(peak + 1, len(demands)) for each in run.in_piece(number)]
    goes_on = max(later) > fewer if later else True
    after = f", up to {max(later)} after it" if later else ""
    return more > fewer and goes_on, f"{more:.1f} workers train in the valley, {fewer:.1f} at the peak{after}"
