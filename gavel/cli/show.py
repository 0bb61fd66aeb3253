"""How answers look on a terminal. Each function turns one answer into something that Rich prints."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gavel.cli.table import FirstThatFits, Rows
from gavel.client import (
    Allocation,
    BearerToken,
    Cancelled,
    Cluster,
    Estimator,
    Event,
    Job,
    Lease,
    Node,
    Operation,
    Round,
    Tier,
    Usage,
    User,
)

Answer = TypeVar("Answer")

STATE_STYLES = {
    "RUNNING": "green",
    "PROFILING": "cyan",
    "QUEUED": "yellow",
    "PREEMPTED": "yellow",
    "PAUSED": "blue",
    "LOST": "magenta",
    "CANCELLING": "magenta",
    "FAILED": "bold red",
    "COMPLETED": "dim",
    "CANCELLED": "dim",
}
CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t\r"}
PIPE_WIDTH = 2000
OTHERS = "(another user's)"  # in place of a job that the caller may not see
SOURCE_MARKS = {"measured": "", "completed": " ~", "stated": " stated", "inferred": " ~", "unknown": " ?"}


def answer(value: Answer, as_json: bool, rendered: Callable[[Answer], RenderableType]) -> None:
    """Print `value`, as JSON or for people."""
    if as_json:
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        # Whoever reads from a pipe gets whole lines.
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        Console(highlight=False, markup=False, emoji=False, width=width).print(rendered(value))


def harmless(text: str) -> str:
    """Text of jobs with control characters spelled out, so that it cannot steer the terminal."""
    return text.translate(CONTROLS)


def jobs(items: Iterable[Job]) -> Rows:
    """One line a job."""
    table = Rows(
        *("JOB", "NAME", "KIND", "TIER", "STATE", "DONE", "ON", "RHO", "REASON"),
        spare=("RHO", "KIND", "ON", "TIER", "NAME"),
        long=("REASON",),
    )
    for each in items:
        table.add_row(
            each["id"],
            each["name"],
            _kind(each),
            each["tier"],
            _state(each),
            f"{_part_done(each):.0%}",
            each["accelerator_type"] or "",
            _number(each["rho"]),
            harmless(each["message"] or each["reason"]),
        )
    return table


def job(each: Job) -> Table:
    """Everything about one job, a line each."""
    return grid(dict(_facts(each)))


def grid(facts: Mapping[str, str | Text]) -> Table:
    """A line for each fact that there is."""
    table = Table.grid(padding=(0, 2))
    for label, value in facts.items():
        if value:
            table.add_row(Text(label, style="dim"), value)
    return table


def _facts(each: Job) -> list[tuple[str, str | Text]]:
    return [
        ("job", f"{each['id']}  {each['name']}"),
        ("state", _state(each)),
        ("reason", harmless(f"{each['reason']}  {each['message']}".strip())),
        ("kind", _kind(each)),
        ("user, tier", f"{each['user']}, {each['tier']}"),
        ("progress", _progress(each)),
        ("runs on", ", ".join(each["worker_ids"])),
        ("received", ", ".join(f"{name} {_duration(held)}" for name, held in each["received_s"].items())),
        ("rho", _number(each["rho"])),
        ("waits for", ", ".join(each["waits_for"])),
        ("deadline", f"{each['deadline']['can_be_met']}: {each['deadline']['message']}" if each["deadline"] else ""),
        ("array", f"{each['array_id']}  {each['array_index']}" if each["array_id"] else ""),
        ("attempts, preemptions", f"{each['attempt']}, {each['preemptions']}"),
        ("submitted", instant(each["submitted_at_s"])),
        ("completion time", "" if each["jct_s"] is None else _duration(each["jct_s"])),
        ("metrics", ", ".join(f"{name} {value:.4g}" for name, value in each["metrics"].items())),
        ("exit code", "" if each["exit_code"] is None else str(each["exit_code"])),
        ("last lines", harmless(each["log_tail"]) if each["state"] == "FAILED" else ""),
    ]


def cancelled(done: Cancelled) -> Text:
    """The ids of jobs that now end, one a line, and a count of those that do not."""
    left = f"\n{len(done['skipped'])} left as they are: {', '.join(done['skipped'])}" if done["skipped"] else ""
    return Text("\n".join(done["cancelling"]) + left)


def usage(month: Usage) -> Rows:
    """What a tier used, beside its limits."""
    table = Rows("", "USED", "LIMIT")
    table.title = f"{month['tier']}, {month['month']}"
    table.add_row(
        "accelerator hours", f"{month['accelerator_hours']:.2f}", _limit(month["accelerator_hours_per_month"])
    )
    table.add_row("USD", f"{month['cost_usd']:.2f}", _limit(month["budget_usd_per_month"]))
    table.add_row("unfinished jobs", str(month["unfinished_jobs"]), _limit(month["max_jobs"]))
    return table


def events(items: Iterable[Event]) -> Rows:
    """A job's story."""
    table = Rows("AT", "EVENT", "ROUND", "MESSAGE", spare=("ROUND",), long=("MESSAGE",))
    for each in items:
        table.add_row(instant(each["at_s"]), each["kind"], _or_blank(each["round_index"]), harmless(each["message"]))
    return table


def tiers(items: Iterable[Tier]) -> Rows:
    """One line a tier, those below it under it and further in."""
    table = Rows(
        *("TIER", "WEIGHT", "OBJECTIVE", "GUARANTEE", "CAP", "PRIORITY", "JOBS", "HOURS/MONTH", "USD/MONTH"),
        spare=("PRIORITY", "JOBS", "USD/MONTH", "HOURS/MONTH", "CAP"),
    )
    for depth, each in _tree(list(items)):
        limits = (each["max_jobs"], each["accelerator_hours_per_month"], each["budget_usd_per_month"])
        table.add_row(
            "  " * depth + each["name"],
            f"{each['weight']:g}",
            each["objective"],
            f"{each['guarantee']:.0%}",
            f"{each['cap']:.0%}",
            str(each["default_priority"]),
            *map(_limit, limits),
        )
    return table


def _tree(items: Sequence[Tier], parent: str | None = None, depth: int = 0) -> Iterator[tuple[int, Tier]]:
    """The tiers below `parent` with their depths, each before those below it; on top whoever is below nobody here."""
    here = {each["name"] for each in items}
    for each in items:
        if (each["parent"] if each["parent"] in here else None) == parent:
            yield depth, each
            yield from _tree(items, each["name"], depth + 1)


def users(items: Iterable[User]) -> Rows:
    """One line a user."""
    table = Rows("USER", "TIERS", long=("TIERS",))
    for each in items:
        table.add_row(each["name"], ", ".join(each["tiers"]))
    return table


def tokens(items: Iterable[BearerToken]) -> Rows:
    """One line a token."""
    table = Rows("TOKEN", "USER", "SCOPE", "MADE")
    for each in items:
        table.add_row(each["id"], each["user"], each["scope"], instant(each["created_at_s"]))
    return table


def allocation(current: Allocation) -> FirstThatFits:
    """The matrix: target and received, each cell shaded by its value relative to the largest; else a line an entry."""
    largest = max((value for row in current["rows"] for value in row["target"] + row["received"]), default=0.0)
    types = [f"{name} ×{current['capacity'].get(name, 0)}" for name in current["types"]]
    wide = Rows("JOB", "NAME", "TIER", *types, spare=("TIER", "NAME"))
    narrow = Rows("JOB", "NAME", "ON", "TARGET", "RECEIVED", spare=("NAME",))
    for row in current["rows"]:
        pairs = list(zip(row["target"], row["received"], strict=True))
        wide.add_row(row["job_id"], row["name"], row["tier"], *(_cell(*pair, largest) for pair in pairs))
        for name, pair in zip(types, pairs, strict=True):
            narrow.add_row(row["job_id"], row["name"], name, *(_shaded(value, largest) for value in pair))
    remarks = [f"{row['job_id']}: {row['note']}" for row in current["rows"] if row["note"]]
    if current["is_fallback"]:
        remarks.append(f"fallback: the solver gave no checked answer ({current['solver_outcome']})")
    for shape in (wide, narrow):
        shape.title = f"{current['policy']}, round {current['round_index']}: target | received"
        shape.caption = "\n".join(remarks) or None
    return FirstThatFits(wide, narrow)


def throughputs(known: Estimator) -> FirstThatFits:
    """Steps per second, kind by type, with the half width of the 90 % interval; sources other than measuring marked."""
    rows: dict[tuple[str, int, str], dict[str, str]] = {}
    for each in known["items"]:
        half = each["high_steps_per_s"] / each["steps_per_s"] - 1
        text = f"{each['steps_per_s']:.4g} ±{half:.0%}{SOURCE_MARKS.get(each['source'], '')}"
        refused = f" ({each['refused']} impossible reports)" if each["refused"] else ""
        where = ", ".join(filter(None, [each["partner"] and f"beside {each['partner']}", _spread(each["placement"])]))
        rows.setdefault((each["kind"], each["scale_factor"], where), {})[each["accelerator_type"]] = text + refused
    wide = Rows("KIND", "SCALE FACTOR", "", *known["types"])
    narrow = Rows("KIND", "SCALE FACTOR", "", "ON", "STEPS/S", spare=("SCALE FACTOR",), long=("",))
    for (kind, scale_factor, where), by_type in rows.items():
        wide.add_row(kind, str(scale_factor), where, *(by_type.get(name, "") for name in known["types"]))
        for name, text in by_type.items():
            narrow.add_row(kind, str(scale_factor), where, name, text)
    off = (each for each in known["users"] if each["is_off"])
    remarks = [] if rows else ["nothing was measured yet: rates are shown once a job has run"]
    if any(each["source"] in ("completed", "inferred") for each in known["items"]):
        remarks.append("~ predicted from others, or measured beside idle workers; ± holds the truth nine times in ten")
    remarks += [f"{each['user']}'s statements are off by a factor of {each['typical_factor']:.2g}" for each in off]
    for shape in (wide, narrow):
        shape.caption = "\n".join(remarks) or None
    return FirstThatFits(wide, narrow)


def _spread(placement: str) -> str:
    return "" if placement == "consolidated" else placement


def rounds(items: Iterable[Round]) -> Rows:
    """One line a round."""
    table = Rows("ROUND", "STARTS", "POLICY", "LEASES", spare=("POLICY", "STARTS"), long=("LEASES",))
    for each in items:
        leases = ", ".join(_lease(lease) for lease in each["leases"])
        table.add_row(str(each["round_index"]), instant(each["starts_at_s"]), each["policy"], leases)
    return table


def _lease(lease: Lease) -> str:
    note = " (profiling)" if lease["is_profiling"] else ""
    return f"{lease['job_id'] or OTHERS}→{'+'.join(lease['worker_ids'])}{note}"


def cluster(current: Cluster) -> Rows:
    """One line a worker."""
    table = Rows("WORKER", "TYPE", "NODE", "JOB", spare=("NODE", "TYPE"))
    for each in current["workers"]:
        holder = each["job_id"] or (OTHERS if each["busy"] else "")
        table.add_row(each["id"], each["accelerator_type"], each["node"], holder)
    return table


def nodes(items: Iterable[Node]) -> Rows:
    """One line a node."""
    table = Rows(
        *("NODE", "STATE", "SINCE", "EMPTY BY", "BY", "WORKERS", "JOBS"),
        spare=("SINCE", "BY", "WORKERS", "EMPTY BY"),
        long=("WORKERS", "JOBS"),
    )
    for each in items:
        table.add_row(
            harmless(each["name"]),
            each["state"],
            instant(each["since_s"]),
            "" if each["drain_by_s"] is None else instant(each["drain_by_s"]),
            each["by"],
            ", ".join(f"{count} {name}" for name, count in sorted(each["capacity"].items())),
            ", ".join(each["jobs"]),
        )
    return table


def catalogue(items: Iterable[Mapping[str, Any]]) -> Rows:
    """One line a job kind."""
    table = Rows("KIND", "TRAINS", long=("TRAINS",))
    for each in items:
        table.add_row(each["name"], each["description"])
    return table


def operation(asked: Operation) -> Table:
    """What was asked, and what became of it."""
    why = asked["error"] or {}
    told = json.dumps(asked["result"], ensure_ascii=False) if asked["result"] else ""
    facts = {
        "operation": f"{asked['id']}  {asked['kind']}  {asked['subject']}",
        "state": asked["state"],
        "by": f"{asked['by']}, {instant(asked['created_at_s'])}",
        "result": harmless(told),
        "error": harmless(", ".join(str(value) for value in why.values() if value)),
    }
    return grid(facts)


def policies(known: Mapping[str, Any]) -> Rows:
    """Policies, the current one first marked, then the objectives that a tier may have."""
    table = Rows("", "POLICY", "STATES", "FROM", spare=("FROM",), long=("STATES", "FROM"))
    for each in known["items"]:
        mark = "*" if each["name"] == known["current"].partition("?")[0] else ""
        table.add_row(mark, each["name"], each["formula"], each["source"])
    table.caption = "objectives of a tier: " + ", ".join(known["tier_objectives"])
    return table


def token(created: Mapping[str, str]) -> Text:
    """The bare token, for scripts."""
    return Text(created["token"], no_wrap=True, overflow="ignore")


# --- small parts


def _state(each: Job) -> Text:
    return Text(each["state"], style=STATE_STYLES.get(each["state"], ""))


def _progress(each: Job) -> str:
    return f"{max(each['steps_done'], each['steps_reported'])}/{each['total_steps']} {_part_done(each):4.0%}"


def _kind(each: Job) -> str:
    return each["kind"] + (f" ×{each['scale_factor']}" if each["scale_factor"] > 1 else "")


def _part_done(each: Job) -> float:
    return max(each["steps_done"], each["steps_reported"]) / each["total_steps"]


def _cell(target: float, received: float, largest: float) -> Text:
    return _shaded(target, largest) + Text(" ") + _shaded(received, largest)


def _shaded(value: float, largest: float) -> Text:
    """A number on a ground between dark blue (0) and light green (the largest)."""
    part = value / largest if largest else 0.0
    red, green, blue = (round(low + (high - low) * part) for low, high in ((24, 140), (40, 214), (72, 90)))
    ink = "black" if part > 0.55 else "white"
    return Text(f" {value:.2f} ", style=f"{ink} on #{red:02x}{green:02x}{blue:02x}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _or_blank(value: int | None) -> str:
    return "" if value is None else str(value)


def instant(at_s: float) -> str:
    """An instant as people here write it."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
