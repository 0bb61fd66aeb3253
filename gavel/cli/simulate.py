"""Commands that need no service: replay a workload on a simulated cluster; export this service's own."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gavel.cli.connection import app, connect, refusals
from gavel.client import Job, Throughput

if TYPE_CHECKING:
    from gavel.simulator.compare import Comparison

Trace = Annotated[str, typer.Option(help="A file, or published?jobs=900&per_hour=5.2 or bursty?jobs=900&per_hour=20.")]
Throughputs = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="JSON of steps/s by type.")]
ClusterText = Annotated[str, typer.Option(help="type:workers[:per-node], separated by commas.")]
Policies = Annotated[list[str], typer.Option("--policy", help="A policy, with ?parameters; repeatable.")]
PolicyPath = Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of your own policies.")]
RoundS = Annotated[float, typer.Option("--round", min=0.5, help="Seconds of a round.")]
Measure = Annotated[str | None, typer.Option(metavar="FIRST:LAST", help="Jobs that count, from 0, LAST not included.")]
Seed = Annotated[int, typer.Option(help="For generators, and kinds that a trace does not name.")]
Out = Annotated[Path | None, typer.Option(file_okay=False, help="Folder for results.json and report.html.")]
Form = Annotated[str, typer.Option("--format", help="published, csv, sacct or history; default: what it looks like.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Count and skip lines that cannot be used.")]
Parity = Annotated[bool, typer.Option("--parity", help="The published planner, a solve per 1920 s at most.")]
SolveOn = Annotated[Literal["change", "event"], typer.Option(help="Solve each round, or on arrivals and ends only.")]
Backfill = Annotated[bool, typer.Option("--backfill/--no-backfill", help="Free workers are given within a round too.")]
TierText = Annotated[list[str] | None, typer.Option("--tier", metavar="NAME=WEIGHT", help="A tier; repeatable.")]
TierShares = Annotated[str | None, typer.Option(metavar="NAME=PART,..", help="Draw the tier of each job so.")]
Cost = Annotated[list[str] | None, typer.Option(metavar="[KIND=]SECONDS", help="What a start costs; repeatable.")]
Consolidation = Annotated[bool, typer.Option(help="Gangs over several nodes run at `_unconsolidated` rates.")]
Packing = Annotated[bool, typer.Option(help="Jobs may share workers, two and two, at the table's pair rates.")]
Estimate = Annotated[bool, typer.Option("--estimate", help="Hide the throughputs: the estimator has to find them.")]
Outage = Annotated[list[str] | None, typer.Option(metavar="NODE=FROM:UNTIL", help="A node fails; repeatable.")]
Drain = Annotated[list[str] | None, typer.Option(metavar="NODE=FROM:UNTIL", help="A node is drained; repeatable.")]
Checkpoints = Annotated[float, typer.Option("--checkpoint-period", min=1.0, help="Seconds from one to the next.")]


@app.command()
def simulate(  # noqa: PLR0913  one option per thing to choose
    *,
    trace: Trace,
    cluster: ClusterText = "v100:36,p100:36,k80:36",
    throughputs: Throughputs = None,
    policy: Policies = ["max_min_fairness"],  # noqa: B006  typer copies it
    policy_path: PolicyPath = None,
    round_s: RoundS = 360.0,
    measure: Measure = None,
    seed: Seed = 0,
    out: Out = None,
    form: Form = "",
    lenient: Lenient = False,
    parity: Parity = False,
    solve_on: SolveOn = "event",
    backfill: Backfill = True,
    tier: TierText = None,
    tier_shares: TierShares = None,
    switch_cost_s: Cost = None,
    consolidation: Consolidation = False,
    packing: Packing = False,
    estimate: Estimate = False,
    outage: Outage = None,
    drain: Drain = None,
    checkpoint_period_s: Checkpoints = 3600.0,
) -> None:
    """Replay a workload on a simulated cluster: which policy, which size, which settings.

    gavel simulate --trace jobs.csv --cluster a100:16 --policy fifo --policy max_min_fairness
    """
    from gavel.cli.simulation import Choices, compared

    choices = Choices(
        trace=trace,
        cluster=cluster,
        throughputs=throughputs,
        policies=tuple(policy),
        policy_path=policy_path,
        round_s=round_s,
        measure=measure,
        seed=seed,
        form=form,
        lenient=lenient,
        parity=parity,
        solve_on=solve_on,
        backfill=backfill,
        tiers=tuple(tier or ()),
        tier_shares=tier_shares,
        switch_cost_s=tuple(switch_cost_s or ()),
        consolidation=consolidation,
        packing=packing,
        estimate=estimate,
        outages=tuple(outage or ()),
        drains=tuple(drain or ()),
        checkpoint_period_s=checkpoint_period_s,
    )
    with refusals():
        found = compared(choices)
    _show(found)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "results.json").open("w", encoding="utf-8") as file:
            file.writelines(found.as_json())
        (out / "report.html").write_text(found.as_html(), encoding="utf-8")
        typer.echo(f"written: {out / 'results.json'}, {out / 'report.html'}", err=True)


@app.command("export-trace")
def export_trace(
    file: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write, one JSON object a line.")],
) -> None:
    """Write this service's jobs as a trace that `gavel simulate` replays, oldest first."""
    with connect() as client:
        jobs = sorted(client.jobs(), key=lambda job: (job["submitted_at_s"], job["id"]))
        speeds = [row for row in client.throughputs()["items"] if row["source"] != "unknown"]
        capacity, weights = client.cluster()["capacity"], {tier["name"]: tier["weight"] for tier in client.tiers()}
    with file.open("w", encoding="utf-8") as lines:
        for job in jobs:
            lines.write(json.dumps(_row(job, jobs[0]["submitted_at_s"], speeds)) + "\n")
    cluster = ",".join(f"{name}:{workers}" for name, workers in capacity.items())
    tiers = "".join(
        f" --tier {name}={weights[name]:g}" for name in sorted({job["tier"] for job in jobs} & weights.keys())
    )
    typer.echo(
        f"{len(jobs)} jobs written; replay them: gavel simulate --trace {file} --cluster {cluster}{tiers}", err=True
    )


def _row(job: Job, start_s: float, speeds: list[Throughput]) -> dict[str, Any]:
    """A job as a line of a trace; times count from the first job's arrival."""
    names = ("kind", "name", "user", "tier", "total_steps", "scale_factor", "weight")
    row: dict[str, Any] = {"submitted_at_s": round(job["submitted_at_s"] - start_s, 3)}
    row |= {name: job[name] for name in names}  # type: ignore[literal-required]
    if job["deadline_at_s"] is not None:
        row["deadline_at_s"] = round(job["deadline_at_s"] - start_s, 3)
    its = [each for each in speeds if (each["kind"], each["scale_factor"]) == (job["kind"], job["scale_factor"])]
    return row | {"throughput_steps_per_s": {each["accelerator_type"]: each["steps_per_s"] for each in its}}


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
