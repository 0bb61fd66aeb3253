"""Commands that need no service: replay a workload on a simulated cluster; export this service's own."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gavel.cli.connection import app, connect, fail

if TYPE_CHECKING:
    from gavel.simulator.compare import Comparison
    from gavel.simulator.lean import Replay, Scenario
    from workloads.traces.job import TraceJob
    from workloads.traces.throughputs import ThroughputTable

Trace = Annotated[str, typer.Option(help="A file, or published?jobs=900&per_hour=5.2 or bursty?jobs=900&per_hour=20.")]
Throughputs = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="JSON of steps/s by type.")]
ClusterText = Annotated[str, typer.Option(help="type:workers[:per-node], separated by commas.")]
Policies = Annotated[list[str], typer.Option("--policy", help="A policy, with ?parameters; repeatable.")]
RoundS = Annotated[float, typer.Option("--round", min=0.5, help="Seconds of a round.")]
Measure = Annotated[str | None, typer.Option(metavar="FIRST:LAST", help="Jobs that count, from 0, LAST not included.")]
Seed = Annotated[int, typer.Option(help="For generators, and kinds that a trace does not name.")]
Out = Annotated[Path | None, typer.Option(file_okay=False, help="Folder for results.json and report.html.")]
Form = Annotated[str, typer.Option("--format", help="published, csv, sacct or history; default: what it looks like.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Count and skip lines that cannot be used.")]
Parity = Annotated[bool, typer.Option("--parity", help="The published planner, a solve per 1920 s at most.")]
SolveOn = Annotated[Literal["change", "event"], typer.Option(help="Solve each round, or on arrivals and ends only.")]
TierText = Annotated[list[str] | None, typer.Option("--tier", metavar="NAME=WEIGHT", help="A tier; repeatable.")]
Cost = Annotated[list[str] | None, typer.Option(metavar="[KIND=]SECONDS", help="What a start costs; repeatable.")]
Consolidation = Annotated[bool, typer.Option(help="Gangs over several nodes run at `_unconsolidated` rates.")]


@app.command()
def simulate(  # noqa: PLR0913  one option per thing to choose
    *,
    trace: Trace,
    cluster: ClusterText = "v100:36,p100:36,k80:36",
    throughputs: Throughputs = None,
    policy: Policies = ["max_min_fairness"],  # noqa: B006  typer copies it
    round_s: RoundS = 360.0,
    measure: Measure = None,
    seed: Seed = 0,
    out: Out = None,
    form: Form = "",
    lenient: Lenient = False,
    parity: Parity = False,
    solve_on: SolveOn = "event",
    tier: TierText = None,
    switch_cost_s: Cost = None,
    consolidation: Consolidation = False,
) -> None:
    """Replay a workload on a simulated cluster: which policy, which size, which settings.

    gavel simulate --trace jobs.csv --cluster a100:16 --policy fifo --policy max_min_fairness
    """
    from gavel.errors import GavelError
    from workloads.traces.throughputs import read_throughputs

    try:
        fields: dict[str, Any] = {"round_duration_s": round_s, "solve_on": solve_on, **(PARITY if parity else {})}
        table = read_throughputs(throughputs) if throughputs else None
        said = {"trace": Path(trace).name, "cluster": cluster, "measure": measure or "all", "seed": seed, **fields}
        found = _compared(
            said | {"switch_cost_s": switch_cost_s or [], "consolidation": consolidation},
            _jobs(trace, table, form, lenient, seed),
            [_scenario(cluster, name, fields, tier or [], measure, switch_cost_s or []) for name in policy],
            table,
            consolidation,
        )
    except GavelError as error:
        fail(str(error))
    _show(found)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(found.as_json(), encoding="utf-8")
        (out / "report.html").write_text(found.as_html(), encoding="utf-8")
        typer.echo(f"written: {out / 'results.json'}, {out / 'report.html'}", err=True)


PARITY = {"planner": "published", "solve_on": "event", "allocation_interval_s": 1920.0}


@app.command("export-trace")
def export_trace(
    file: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write, one JSON object a line.")],
) -> None:
    """Write this service's jobs as a trace that `gavel simulate` replays, oldest first."""
    with connect() as client:
        jobs = sorted(client.jobs(), key=lambda job: (job["submitted_at_s"], job["id"]))
        start_s = jobs[0]["submitted_at_s"] if jobs else 0.0
        speeds = [row for row in client.throughputs()["items"] if row["source"] == "measured"]
    names = ("kind", "name", "user", "tier", "total_steps", "scale_factor", "weight")
    with file.open("w", encoding="utf-8") as lines:
        for job in jobs:
            row: dict[str, Any] = {"submitted_at_s": round(job["submitted_at_s"] - start_s, 3)}
            row |= {name: job[name] for name in names}  # type: ignore[literal-required]
            if job["deadline_at_s"] is not None:
                row["deadline_at_s"] = round(job["deadline_at_s"] - start_s, 3)
            row["throughput_steps_per_s"] = {
                speed["accelerator_type"]: speed["steps_per_s"]
                for speed in speeds
                if (speed["kind"], speed["scale_factor"]) == (job["kind"], job["scale_factor"])
            }
            lines.write(json.dumps(row) + "\n")
    typer.echo(f"{len(jobs)} jobs written to {file}", err=True)


def _jobs(trace: str, table: "ThroughputTable | None", form: str, lenient: bool, seed: int) -> "list[TraceJob]":
    from gavel.simulator.setup import workload

    jobs, lines = workload(trace, table, form=form, is_lenient=lenient, seed=seed)
    read = list(jobs)
    if lines and lines.skipped:
        typer.echo(f"{len(lines.skipped)} lines skipped; the first is {lines.skipped[0]}", err=True)
    return read


def _scenario(
    cluster: str, policy: str, fields: dict[str, Any], tiers: list[str], measure: str | None, costs_s: list[str]
) -> "Scenario":
    from gavel.config import Settings
    from gavel.policies import registry
    from gavel.simulator.lean import Scenario
    from gavel.simulator.setup import cluster_of, costs_of, range_of, tiers_of

    registry.load(policy)  # so that a mistake in the last one does not cost the runs before it
    over = dict(fields)
    if over.get("planner") == "published" and "agnostic=true" in policy:
        over["planner"] = "published_shuffled"  # as the original does for policies that cannot tell types apart
    return Scenario(
        cluster=cluster_of(cluster),
        throughput={},
        settings=Settings(policy=policy, **over),
        tiers=tiers_of(tiers),
        measure=range_of(measure) if measure else None,
        switch_cost_s=costs_of(costs_s),
    )


def _compared(
    said: dict[str, Any],
    jobs: "list[TraceJob]",
    scenarios: "Sequence[Scenario]",
    table: "ThroughputTable | None",
    has_network: bool,
) -> "Comparison":
    from dataclasses import replace

    from gavel.simulator.compare import Comparison
    from gavel.simulator.figures import makespan_bound_h
    from gavel.simulator.setup import rates
    from workloads.traces.throughputs import ScaledRates, ThroughputTable

    throughput = rates(jobs, table)
    spread = ScaledRates(ThroughputTable(rates=table.spread)) if table and has_network else None
    measured = jobs[slice(*scenarios[0].measure)] if scenarios[0].measure else jobs
    if not measured:
        fail(f"the trace has {len(jobs)} jobs, and none of those to be measured")
    at_once = all(job.submitted_at_s == measured[0].submitted_at_s for job in measured)
    results = {
        each.settings.policy: _run(jobs, replace(each, throughput=throughput, spread=spread), len(measured))
        for each in scenarios
    }
    bound_h = makespan_bound_h(measured, scenarios[0].cluster, throughput) if at_once else None
    tiers = [tier.name for tier in scenarios[0].tiers]
    return Comparison(scenario=said, replays=results, tiers=tiers, makespan_bound_h=bound_h)


def _run(jobs: "list[TraceJob]", scenario: "Scenario", count: int) -> "Replay":
    from rich.console import Console
    from rich.progress import Progress

    from gavel.policies import registry
    from gavel.policies.inline import InlineRunner
    from gavel.simulator import interior
    from gavel.simulator.lean import LeanWorld

    is_parity = scenario.settings.planner != "owed"
    world = LeanWorld(jobs, scenario, InlineRunner(interior.load if is_parity else registry.load))
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(scenario.settings.policy, total=count)
        for index, _ in enumerate(world.rounds()):
            if index % 50 == 0:
                progress.update(task, completed=world.completed)
    return world.result()


def _show(found: "Comparison") -> None:
    from rich.console import Console
    from rich.table import Table

    from gavel.simulator.compare import COLUMNS, counted

    table = Table(title=f"{found.scenario['trace']} on {found.scenario['cluster']}", title_justify="left")
    table.add_column("", overflow="fold")
    for policy in found.replays:
        table.add_column(policy, justify="right", overflow="fold")
    figures = found.figures()
    for name, title in COLUMNS.items():
        table.add_row(title, *(f"{getattr(of, name):.4g}" for of in figures.values()))
    for title, values in counted(found.replays.values()).items():
        table.add_row(title, *values)
    if found.makespan_bound_h:
        table.caption = f"no schedule ends in under {found.makespan_bound_h:.4g} h"
    Console(width=max(100, 40 + 30 * len(found.replays))).print(table)
