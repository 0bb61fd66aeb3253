"""The demo's display: a live table while it runs, tables of results at the end."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gavel.client import Job as JobView
from gavel.simulator.report import Metrics, completed_rho
from gavel.types import AcceleratorType, Job

MEASURES = {"mean JCT s": "mean_jct_s", "makespan s": "makespan_s", "mean rho": "mean_rho", "max rho": "max_rho"}
STATE_STYLE = {
    "RUNNING": "green",
    "PROFILING": "cyan",
    "COMPLETED": "bold green",
    "PREEMPTED": "yellow",
    "FAILED": "bold red",
    "CANCELLED": "red",
}


def live(jobs: Sequence[JobView], url: str, round_index: int, elapsed_s: float) -> RenderableType:
    """Every job with its state, place and progress."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("job", "tier", "kind", "state", "on", "progress", "steps"):
        table.add_column(column, justify="right" if column == "steps" else "left")
    for job in sorted(jobs, key=lambda job: job["submitted_at_s"]):
        steps = max(job["steps_reported"], job["steps_done"])
        table.add_row(
            job["name"],
            job["tier"],
            job["kind"] + (f" x{job['scale_factor']}" if job["scale_factor"] > 1 else ""),
            Text(job["state"], style=STATE_STYLE.get(job["state"], "dim")),
            job["accelerator_type"] or "",
            ProgressBar(total=job["total_steps"], completed=steps, width=20),
            f"{steps}/{job['total_steps']}",
        )
    head = Text.assemble(
        ("Gavel demo ", "bold"), f"· round {round_index} · {elapsed_s:.0f} s · dashboard and API at {url}"
    )
    return Group(head, table)


def line(jobs: Sequence[JobView], round_index: int, elapsed_s: float) -> str:
    """The same in one line, for output that is not a terminal."""
    count: dict[str, int] = {}
    for job in jobs:
        count[job["state"].lower()] = count.get(job["state"].lower(), 0) + 1
    states = ", ".join(f"{number} {state}" for state, number in sorted(count.items()))
    return f"  {elapsed_s:4.0f} s  round {round_index:3d}  {states}"


def jobs_table(jobs: Iterable[Job], types: Sequence[AcceleratorType]) -> Table:
    """Per job: where it ran, how often it was preempted, JCT and finish-time fairness."""
    table = Table(title="Jobs", title_justify="left")
    for column in ("job", "tier", "kind", "steps"):
        table.add_column(column)
    for name in types:
        table.add_column(f"rounds {name}", justify="right")
    for column in ("preemptions", "JCT s", "rho"):
        table.add_column(column, justify="right")
    for job in sorted(jobs, key=lambda job: job.submitted_at_s):
        spec = job.spec
        table.add_row(
            spec.name,
            spec.tier,
            spec.kind + (f" x{spec.scale_factor}" if spec.scale_factor > 1 else ""),
            f"{job.steps_done}/{spec.total_steps}",
            *(str(job.rounds_received.get(name, 0)) for name in types),
            str(job.preemptions),
            f"{(job.finished_at_s or 0) - job.submitted_at_s:.1f}",
            _number(completed_rho(job)),
        )
    return table


def throughput_table(
    rates: Mapping[tuple[str, int, AcceleratorType], float], types: Sequence[AcceleratorType]
) -> Table:
    """The measured matrix: steps per second of each kind on each type, and the ratio of best to worst."""
    table = Table(title="Measured throughput, steps/s", title_justify="left")
    for column in ("kind", "gang", *types, "ratio"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, scale_factor in sorted({key[:2] for key in rates}):
        row = [rates.get((kind, scale_factor, name)) for name in types]
        measured = [rate for rate in row if rate]
        ratio = f"{max(measured) / min(measured):.2f}" if len(measured) > 1 else ""
        table.add_row(kind, str(scale_factor), *(_number(rate, 1) for rate in row), ratio)
    return table


def comparison_table(columns: Mapping[str, Mapping[str, Metrics]]) -> Table:
    """Real run, simulated aware, simulated agnostic, side by side; rows: all jobs, then each tier."""
    table = Table(title="Results", title_justify="left")
    table.add_column("jobs")
    table.add_column("measure")
    for name in columns:
        table.add_column(name, justify="right")
    groups = next(iter(columns.values()))
    for group in groups:
        for label, name in MEASURES.items():
            table.add_row(group, label, *(_number(getattr(each[group], name)) for each in columns.values()))
        table.add_section()
    return table


def print_checks(checks: Sequence[tuple[bool, str]], console: Console) -> None:
    """One line a check."""
    for holds, what in checks:
        console.print(Text("  ok      " if holds else "  FAILED  ", style="green" if holds else "bold red") + what)


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
