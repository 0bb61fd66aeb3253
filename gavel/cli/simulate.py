"""Commands that need no service: simulate a workload, and export the jobs of this service as a trace."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gavel.cli.connection import app, connect, refusals
from gavel.errors import InvalidRequest

if TYPE_CHECKING:
    from gavel.cli.autopilot import Goals
    from gavel.cli.simulation import Choices
    from gavel.client import Job, Throughput
    from gavel.simulator.compare import Comparison

Trace = Annotated[
    str,
    typer.Option(help="A file, or a generator: published?jobs=900&per_hour=5.2, bursty?.., suite?workload=..&jobs=24."),
]
Throughputs = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="JSON of steps/s by type.")]
ClusterText = Annotated[
    str | None,
    typer.Option(
        help="type:workers[:per-node][@region], separated by commas; default: the trace's, else 36 each of three."
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", help="A policy, with ?parameters; repeatable. Default: the service's policy."),
]
Compare = Annotated[
    bool,
    typer.Option("--compare", help="A line for each policy, the least mean JCT first: of --policy, or the usual ones."),
]
PolicyDir = Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Folder of your own policies.")]
RoundS = Annotated[
    float | None, typer.Option("--round", min=0.5, help="Seconds of a round; default: the service's setting.")
]
Measure = Annotated[
    str | None, typer.Option(metavar="FIRST:LAST", help="Jobs that are measured, counted from 0, without LAST.")
]
Seed = Annotated[int, typer.Option(help="For generators, and kinds that a trace does not name.")]
Out = Annotated[Path | None, typer.Option(file_okay=False, help="Folder for results.json and report.html.")]
Form = Annotated[
    str, typer.Option("--format", help="published, csv, sacct or history; default: detected from the content.")
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Skip and count lines that cannot be used, and gangs that fit no type.")
]
Parity = Annotated[bool, typer.Option("--parity", help="The published mechanism: its planner, rounds of 360 s.")]
SolveOn = Annotated[
    Literal["change", "event"] | None, typer.Option(help="Solve each round, or on arrivals and ends only.")
]
Planner = Annotated[
    Literal["lag", "published", "published_shuffled"] | None, typer.Option(help="Who goes first in a round.")
]
Backfill = Annotated[
    bool | None, typer.Option("--backfill/--no-backfill", help="Give free workers away within a round, too.")
]
TierText = Annotated[list[str] | None, typer.Option("--tier", metavar="NAME=WEIGHT", help="A tier; repeatable.")]
WithinUser = Annotated[
    str | None, typer.Option(help="How the jobs of one user share in every tier: fast, equal, fifo, ..")
]
TierShares = Annotated[str | None, typer.Option(metavar="NAME=PART,..", help="Draw the tier of each job so.")]
Cost = Annotated[
    list[str] | None, typer.Option(metavar="[KIND=]SECONDS", help="Seconds that a start costs; repeatable.")
]
Consolidation = Annotated[bool, typer.Option(help="Gangs over several nodes run at `_unconsolidated` rates.")]
Packing = Annotated[
    bool | None,
    typer.Option("--packing/--no-packing", help="Jobs may share workers, two and two, at the table's pair rates."),
]
Estimate = Annotated[bool, typer.Option("--estimate", help="Hide the throughputs: the estimator has to learn them.")]
Outage = Annotated[list[str] | None, typer.Option(metavar="NODE=FROM:UNTIL", help="A node fails; repeatable.")]
Drain = Annotated[list[str] | None, typer.Option(metavar="NODE=FROM:UNTIL", help="A node is drained; repeatable.")]
Checkpoints = Annotated[float, typer.Option("--checkpoint-period", min=1.0, help="Seconds from one to the next.")]
CheckpointBytes = Annotated[
    int, typer.Option("--checkpoint-bytes", min=0, help="Size of a checkpoint, which moves between regions copy.")
]
LengthError = Annotated[
    float, typer.Option(min=0.0, max=5.0, help="Lengths that jobs state are off by exp(N(0, this)); 0: exact.")
]
Autopilot = Annotated[bool, typer.Option("--autopilot", help="Choose among candidates again and again, for --goal.")]
GoalText = Annotated[str, typer.Option(help="What the autopilot makes small: mean_jct, or mean_jct=2,money=1, ..")]
Candidates = Annotated[
    list[str] | None,
    typer.Option(
        "--candidate", metavar="POLICY[/PART=VALUE..]", help="Of the autopilot; repeatable. First: the start."
    ),
]
EpochS = Annotated[
    float, typer.Option("--epoch", min=1.0, help="Seconds from one decision of the autopilot to the next.")
]


@app.command()
def simulate(  # noqa: PLR0913  one option per thing to choose
    *,
    trace: Trace,
    cluster: ClusterText = None,
    throughputs: Throughputs = None,
    policy: Policies = None,
    compare: Compare = False,
    policy_dir: PolicyDir = None,
    round_s: RoundS = None,
    measure: Measure = None,
    seed: Seed = 0,
    out: Out = None,
    form: Form = "",
    lenient: Lenient = False,
    parity: Parity = False,
    solve_on: SolveOn = None,
    planner: Planner = None,
    backfill: Backfill = None,
    tier: TierText = None,
    tier_shares: TierShares = None,
    within_user: WithinUser = None,
    switch_cost_s: Cost = None,
    consolidation: Consolidation = False,
    packing: Packing = None,
    estimate: Estimate = False,
    outage: Outage = None,
    drain: Drain = None,
    checkpoint_period_s: Checkpoints = 3600.0,
    checkpoint_bytes: CheckpointBytes = 0,
    length_error: LengthError = 0.0,
    autopilot: Autopilot = False,
    goal: GoalText = "mean_jct",
    candidate: Candidates = None,
    epoch_s: EpochS = 28_800.0,
) -> None:
    """Simulate a workload on a virtual cluster: which policy, which size, which settings.

    Decided by the rules of the service (gavel.toml, GAVEL_*) where no option sets another one.

    gavel simulate --trace jobs.csv --cluster a100:16 --policy fifo --policy max_min_fairness

    Which policy would have served the jobs of this service best?

    gavel export-trace history.jsonl; gavel simulate --trace history.jsonl --compare
    """
    options = dict(locals())
    from gavel.cli.simulation import choices_of, compared

    choices = choices_of(options)
    if compare:
        if autopilot or candidate:
            with refusals():
                raise InvalidRequest("compare", "shows fixed policies; leave out --autopilot and --candidate")
        _compare(choices, out)
        return
    if autopilot:
        from gavel.cli.autopilot import Goals

        _fly(choices, Goals(goal=goal, candidates=tuple(candidate or ()), epoch_s=epoch_s), out)
        return
    with refusals():
        if candidate:
            raise InvalidRequest("candidate", "is for the autopilot; add --autopilot, or name a --policy")
        comparison = compared(choices)
    _show(comparison)
    if out:
        _write(comparison, out)


def _compare(choices: "Choices", out: Path | None) -> None:
    """Simulate many policies, and print a line for each, with a sentence about the best."""
    from rich.console import Console

    from gavel.cli.policy_table import table_of, to_compare, verdict
    from gavel.cli.simulation import compared, service_policy

    with refusals():
        service = service_policy(choices.policy_dir)
        comparison = compared(replace(choices, policies=to_compare(choices.policies, service, choices.policy_dir)))
    _show_rules(comparison)
    Console(width=180).print(table_of(comparison, service))
    typer.echo(verdict(comparison, service))
    if out:
        _write(comparison, out)


def _fly(choices: "Choices", wanted: "Goals", out: Path | None) -> None:
    """Run the simulation under the autopilot, and show what it did."""
    from gavel.cli.autopilot import flown

    with refusals():
        done = flown(choices, wanted)
    _show(done.comparison)
    typer.echo("\n".join(done.lines))
    if out:
        _write(done.comparison, out)
        done.write(out)


def _write(comparison: "Comparison", out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "results.json").open("w", encoding="utf-8") as file:
        file.writelines(comparison.as_json())
    (out / "report.html").write_text(comparison.as_html(), encoding="utf-8")
    typer.echo(f"written: {out / 'results.json'}, {out / 'report.html'}", err=True)


@app.command("export-trace")
def export_trace(
    file: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write, one JSON object a line.")],
) -> None:
    """Write this service's jobs, tiers and cluster as a trace that `gavel simulate` replays, oldest job first."""
    from workloads.traces.history import written

    with connect() as client:
        jobs = sorted(client.jobs(), key=lambda job: (job["submitted_at_s"], job["id"]))
        table = client.throughputs()["items"]
        steps_per_s = {
            job["id"]: {kind: {size: _rates(job, kind, size, table) for size in sizes} for kind, sizes in _sizes(job)}
            for job in jobs
        }
        lines = written(jobs, steps_per_s, client.cluster(), client.tiers())
    with file.open("w", encoding="utf-8") as out:
        out.writelines(lines)
    typer.echo(f"{len(jobs)} jobs written; simulate them: gavel simulate --trace {file}", err=True)


def _sizes(job: "Job") -> list[tuple[str, list[int]]]:
    """Return the kinds that the job may run as, its plans' or its own, each with its sizes."""
    if job["plans"]:
        return [(plan["kind"], plan["sizes"]) for plan in job["plans"]]
    return [(job["kind"], job["sizes"] or [job["scale_factor"]])]


def _rates(job: "Job", kind: str, size: int, table: "list[Throughput]") -> dict[str, float]:
    """Return the job's steps per second under a kind at a size, by type: its own before its kind's; its user's claim
    before an estimate."""
    from gavel.estimator.kinds import OWN_KIND
    from gavel.ports import ThroughputSource

    rates: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for whose in (kind, f"{kind}{OWN_KIND}{job['id']}"):
        for each in table:
            source = ThroughputSource(each["source"])
            is_its = (each["kind"], each["scale_factor"]) == (whose, size)
            if is_its and source is not ThroughputSource.UNKNOWN:
                rates[source.is_reliable][each["accelerator_type"]] = each["steps_per_s"]
    return {**rates[False], **job["throughputs"], **rates[True]}


def _show(comparison: "Comparison") -> None:
    from rich.console import Console
    from rich.table import Table

    from gavel.simulator import columns
    from gavel.simulator.compare import counted

    _show_rules(comparison)
    table = Table(title=f"{comparison.scenario['trace']} on {comparison.scenario['cluster']}", title_justify="left")
    table.add_column("", overflow="fold")
    for policy in comparison.outcomes:
        table.add_column(policy, justify="right", overflow="fold")
    figures = comparison.figures()
    for name, column in columns.shown(figures.values()).items():
        table.add_row(column.header, *(column.text(getattr(of, name)) for of in figures.values()))
    for title, values in counted(comparison.outcomes.values()).items():
        table.add_row(title, *values)
    if comparison.makespan_bound_h:
        table.caption = f"no schedule ends in under {comparison.makespan_bound_h:.4g} h"
    Console(width=max(100, 40 + 30 * len(comparison.outcomes))).print(table)


def _show_rules(comparison: "Comparison") -> None:
    """Say by which settings of the service the runs were decided, and which are not its defaults."""
    from gavel.simulator.rules import written

    typer.echo("rules: " + "; ".join(f"{rule.name} {rule.text}" for rule in comparison.rules))
    unlike = [
        f"{rule.name} {rule.text} (there {written(rule.default)})" for rule in comparison.rules if not rule.is_default
    ]
    typer.echo(f"unlike the service's defaults: {'; '.join(unlike) or 'none'}")
