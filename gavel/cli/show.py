"""How answers look on a terminal. Each function returns what Rich prints for one answer."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gavel.cli.checkpoints import measured_rows
from gavel.cli.needs import changes_so_far, how_long_it_stays, where_it_runs, worker_rows
from gavel.cli.program import phases_text, program_rows
from gavel.cli.table import Rows
from gavel.client import (
    BearerToken,
    Cancelled,
    CatalogueEntry,
    Cluster,
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
from gavel.client.answers import WrittenCheckpoint

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


def answer(value: Answer, as_json: bool, rendered: Callable[[Answer], RenderableType]) -> None:
    """Print `value`, as JSON or for people."""
    if as_json:
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        # Output to a pipe is not folded.
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        Console(highlight=False, markup=False, emoji=False, width=width).print(rendered(value))


def working() -> AbstractContextManager[object]:
    """Return a context in which a terminal shows that an answer is being worked out; elsewhere nothing is printed."""
    console = Console(stderr=True)
    return console.status("Working it out. Ctrl-C cancels it.") if console.is_terminal else nullcontext()


def harmless(text: str) -> str:
    """Return text of jobs with control characters spelled out, so that it cannot control the terminal."""
    return text.translate(CONTROLS)


def jobs(items: Iterable[Job]) -> Rows:
    """Return one line per job."""
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
            _part_done(each),
            each["accelerator_type"] or "",
            _number(each["rho"]),
            harmless(each["message"]),
        )
    return table


def job(each: Job) -> Table:
    """Return all facts about one job, one line each."""
    return grid(dict(_facts(each)))


def job_with(
    each: Job, sentence: str, events: Iterable[Event] = (), written: Sequence[WrittenCheckpoint] = ()
) -> Group:
    """Return the sentence about a job, then all facts, with the code of the reason, and changes that `events` have."""
    facts = dict(_facts(each, written)) | {"reason": each["reason"], **changes_so_far(list(events), instant)}
    return Group(harmless(sentence), grid(facts))


def submitted(each: Job, sentence: str, *, is_log_shown: bool = False) -> Group:
    """Return the answer to a submission: which job, where it is, how to follow it; if it failed, its last lines."""
    name, job_id = f" ({each['name']})" if each["name"] else "", each["id"]
    follow = f"To follow it: gavel job logs -f {job_id}" if each["finished_at_s"] is None else ""
    last = harmless(each["log_tail"]).rstrip() if each["state"] == "FAILED" and not is_log_shown else ""
    return Group(*filter(None, (f"job {job_id}{name}", harmless(sentence), follow, last)))


def grid(facts: Mapping[str, str | Text]) -> Table:
    """Return one line for each fact that has a value."""
    table = Table.grid(padding=(0, 2))
    for label, value in facts.items():
        if value:
            table.add_row(Text(label, style="dim"), value)
    return table


def _facts(each: Job, written: Sequence[WrittenCheckpoint] = ()) -> list[tuple[str, str | Text]]:
    return [
        ("job", f"{each['id']}  {each['name']}"),
        ("state", _state(each)),
        ("reason", harmless(f"{each['reason']}. {each['message']}")),
        ("what helps", harmless(each["fix"])),
        ("kind", _kind(each)),
        ("kind is made of", harmless(each["kind_from"])),
        ("kind has also", ", ".join(each["kind_args"])),
        ("user, tier", f"{each['user']}, {each['tier']}"),
        ("progress", _progress(each)),
        ("runs on", ", ".join(each["worker_ids"])),
        ("received", ", ".join(f"{name} {_duration(held)}" for name, held in each["received_s"].items())),
        ("besides training", harmless(phases_text(each))),
        ("units of work", "" if each["work_units_per_s"] is None else f"{each['work_units_per_s']:.4g} a second"),
        ("rho", _number(each["rho"])),
        ("isolated share", each["isolated_share"]),
        ("waits for", ", ".join(each["waits_for"])),
        ("deadline", f"{each['deadline']['outlook']}: {each['deadline']['message']}" if each["deadline"] else ""),
        ("array", f"{each['array_id']}  {each['array_index']}" if each["array_id"] else ""),
        ("notifies of", "" if each["notify"] is None else ", ".join(each["notify"]) or "nothing"),
        ("submitted again from", each["resubmit_of"] or ""),
        ("began with checkpoint", each["from_checkpoint"]),
        ("attempts, preemptions", f"{each['attempt']}, {each['preemptions']}"),
        ("submitted", instant(each["submitted_at_s"])),
        ("completion time", "" if each["jct_s"] is None else _duration(each["jct_s"])),
        *measured_rows(each, written),
        ("no progress", harmless(each["no_progress"])),
        ("metrics", ", ".join(f"{name} {value:.4g}" for name, value in each["metrics"].items())),
        ("exit code", "" if each["exit_code"] is None else str(each["exit_code"])),
        ("last lines", harmless(each["log_tail"]) if each["state"] == "FAILED" else ""),
        *_submitted(each),
    ]


def _submitted(each: Job) -> list[tuple[str, str]]:
    """Return what was submitted and is not shown elsewhere."""
    return [
        *((name, harmless(text)) for name, text in program_rows(each)),
        ("labels", harmless(", ".join(f"{name}={value}" for name, value in each["labels"].items()))),
        *worker_rows(each),
        ("runs only on", harmless(where_it_runs(each))),
        ("weight, priority", f"{each['weight']:g}, {each['priority']}"),
        ("preemptible", how_long_it_stays(each, instant)),
        ("retries", f"{each['failures']} of {each['max_retries']}"),
        ("after", ", ".join(each["after"])),
        ("wanted by", "" if each["deadline_at_s"] is None else instant(each["deadline_at_s"])),
        ("stated steps/s", ", ".join(f"{name} {rate:g}" for name, rate in each["throughputs"].items())),
    ]


def cancelled(done: Cancelled) -> Text:
    """Return the ids of jobs that now end, one per line, and a count of those that do not."""
    left = f"\n{len(done['skipped'])} left as they are: {', '.join(done['skipped'])}" if done["skipped"] else ""
    return Text("\n".join(done["cancelling"]) + left)


def usage(month: Usage) -> Rows:
    """Return what a tier used, with its limits."""
    table = Rows("", "USED", "LIMIT")
    table.title = f"{month['tier']}, {month['month']}"
    table.add_row(
        "accelerator hours", f"{month['accelerator_hours']:.2f}", _limit(month["accelerator_hours_per_month"])
    )
    table.add_row("USD", f"{month['cost_usd']:.2f}", _limit(month["budget_usd_per_month"]))
    table.add_row("worker hours", f"{month['worker_hours']:.2f}", "")
    table.add_row("lost gangs", str(month["lost_gangs"]), "")
    table.add_row("unfinished jobs", str(month["unfinished_jobs"]), _limit(month["max_jobs"]))
    return table


def events(items: Iterable[Event]) -> Rows:
    """Return a job's history."""
    table = Rows("AT", "EVENT", "ROUND", "MESSAGE", spare=("ROUND",), long=("MESSAGE",))
    for each in items:
        table.add_row(instant(each["at_s"]), each["kind"], _or_blank(each["round_index"]), harmless(each["message"]))
    return table


def tiers(items: Iterable[Tier]) -> Rows:
    """Return one line per tier, its child tiers indented below it."""
    table = Rows(
        *(
            "TIER",
            "WEIGHT",
            "OBJECTIVE",
            "WITHIN USER",
            "GUARANTEE",
            "CAP",
            "PRIORITY",
            "JOBS",
            "HOURS/MONTH",
            "USD/MONTH",
            "NON-PREEMPTIBLE",
            "SESSION H",
        ),
        spare=("SESSION H", "NON-PREEMPTIBLE", "PRIORITY", "JOBS", "USD/MONTH", "HOURS/MONTH", "CAP", "WITHIN USER"),
    )
    for depth, each in _tree(list(items)):
        limits = (each["max_jobs"], each["accelerator_hours_per_month"], each["budget_usd_per_month"])
        table.add_row(
            "  " * depth + each["name"],
            f"{each['weight']:g}",
            each["objective"],
            each["within_user"] if each["objective"] == "fairness" else "-",
            f"{each['guarantee']:.0%}",
            f"{each['cap']:.0%}",
            str(each["default_priority"]),
            *map(_limit, limits),
            _limit(each["non_preemptible_workers"]),
            _limit(None if each["session_longest_s"] is None else each["session_longest_s"] / 3600),
        )
    return table


def _tree(items: Sequence[Tier], parent: str | None = None, depth: int = 0) -> Iterator[tuple[int, Tier]]:
    """Return the tiers below `parent` with their depths, parents first. Without a listed parent: at the top."""
    here = {each["name"] for each in items}
    for each in items:
        if (each["parent"] if each["parent"] in here else None) == parent:
            yield depth, each
            yield from _tree(items, each["name"], depth + 1)


def users(items: Iterable[User]) -> Rows:
    """Return one line per user."""
    table = Rows("USER", "TIERS", long=("TIERS",))
    for each in items:
        table.add_row(each["name"], ", ".join(each["tiers"]))
    return table


def tokens(items: Iterable[BearerToken]) -> Rows:
    """Return one line per token."""
    table = Rows("TOKEN", "USER", "SCOPE", "MADE", "JOB")
    for each in items:
        table.add_row(each["id"], each["user"], each["scope"], instant(each["created_at_s"]), each["job_id"] or "")
    return table


def rounds(items: Iterable[Round]) -> Rows:
    """Return one line per round."""
    table = Rows("ROUND", "STARTS", "POLICY", "LEASES", spare=("POLICY", "STARTS"), long=("LEASES",))
    for each in items:
        leases = ", ".join(_lease(lease) for lease in each["leases"])
        table.add_row(str(each["round_index"]), instant(each["starts_at_s"]), each["policy"], leases)
    return table


def _lease(lease: Lease) -> str:
    note = " (profiling)" if lease["is_profiling"] else ""
    return f"{lease['job_id'] or OTHERS}→{'+'.join(lease['worker_ids'])}{note}"


def cluster(current: Cluster) -> Rows:
    """Return one line per worker."""
    table = Rows("WORKER", "TYPE", "NODE", "JOB", spare=("NODE", "TYPE"))
    for each in current["workers"]:
        holders = ", ".join(job_id or OTHERS for job_id in each["job_ids"])
        table.add_row(each["id"], each["accelerator_type"], each["node"], holders)
    return table


def nodes(items: Iterable[Node]) -> Rows:
    """Return one line per node."""
    table = Rows(
        *("NODE", "STATE", "SINCE", "EMPTY BY", "BY", "WORKERS", "JOBS", "PROBLEM"),
        spare=("SINCE", "BY", "WORKERS", "EMPTY BY"),
        long=("WORKERS", "JOBS", "PROBLEM"),
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
            harmless(each["problem"]),
        )
    return table


def catalogue(items: Iterable[CatalogueEntry]) -> Rows:
    """Return one line per job kind."""
    table = Rows("KIND", "TRAINS", long=("TRAINS",))
    for each in items:
        table.add_row(each["name"], each["description"])
    return table


def operation(asked: Operation) -> Table:
    """Return what was asked, and the outcome."""
    why: Mapping[str, Any] = asked["error"] or {}
    result = json.dumps(asked["result"], ensure_ascii=False) if asked["result"] else ""
    facts = {
        "operation": f"{asked['id']}  {asked['kind']}  {asked['subject']}",
        "state": asked["state"],
        "by": f"{asked['by']}, {instant(asked['created_at_s'])}",
        "result": harmless(result),
        "error": harmless(", ".join(str(value) for value in why.values() if value)),
    }
    return grid(facts)


def policies(listed: Mapping[str, Any]) -> Rows:
    """Return the policies, the current one marked, then the objectives that a tier may have."""
    table = Rows("", "POLICY", "WHEN", "STATES", "FROM", spare=("FROM", "STATES"), long=("WHEN", "STATES", "FROM"))
    for each in listed["items"]:
        mark = "*" if each["name"] == re.split("[?/]", listed["current"])[0] else ""
        table.add_row(mark, each["name"], each["choose_when"], each["formula"], each["source"])
    table.caption = "\n".join(f"objective {name}: {text}" for name, text in listed["tier_objectives"].items())
    table.caption += "\nwithin a user, where that is fairness: " + ", ".join(listed["within_user"])
    for tier, objective in listed["auto_objectives"].items():
        table.caption += f"\ntier {tier}, whose objective is auto, has {objective} now"
    return table


def token(created: Mapping[str, str]) -> Text:
    """Return the bare token, for scripts."""
    return Text(created["token"], no_wrap=True, overflow="ignore")


# --- small parts


def _state(each: Job) -> Text:
    return Text(each["state"], style=STATE_STYLES.get(each["state"], ""))


def _progress(each: Job) -> str:
    steps, total_steps = max(each["steps_done"], each["steps_reported"]), each["total_steps"]
    if total_steps is None:
        return f"{steps}, steps unknown yet" if each["finished_at_s"] is None else f"{steps} steps"
    return f"{steps}/{total_steps} {steps / total_steps:4.0%}"


def _kind(each: Job) -> str:
    return each["kind"] + (f" ×{each['scale_factor']}" if each["scale_factor"] > 1 else "")


def _part_done(each: Job) -> str:
    """Return the part of its steps that a job has done; of a service the replicas that are ready, of those it wants."""
    if each["service"] is not None:
        return f"{each['service']['ready']}/{each['service']['replicas']} ready"
    steps = max(each["steps_done"], each["steps_reported"])
    return "" if each["total_steps"] is None else f"{steps / each['total_steps']:.0%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _or_blank(value: int | None) -> str:
    return "" if value is None else str(value)


def instant(at_s: float) -> str:
    """Return an instant as text in this machine's locale and time zone."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
