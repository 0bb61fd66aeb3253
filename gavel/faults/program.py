"""`gavel-faults`: run seeds, replay one with its trace, shrink a failing one to a test."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gavel.faults.drawing import draw
from gavel.faults.records import as_json, scenario_of
from gavel.faults.scenario import Scenario
from gavel.faults.search import run_seeds, silenced
from gavel.faults.shrinking import shrink as shrunk
from gavel.faults.world import RunResult, run

app = typer.Typer(
    help="Simulate the service with faults: the production code in virtual time, one run for each seed.",
    no_args_is_help=True,
    add_completion=False,
)

Seed = Annotated[str, typer.Argument(help="A seed, or a JSON file of a scenario.")]


@app.command("run")
def run_range(
    seeds: Annotated[str, typer.Option(help="Which seeds: FIRST:LAST, without the last.")] = "0:500",
    processes: Annotated[int, typer.Option(help="Processes that share the seeds.", min=1)] = os.cpu_count() or 1,
) -> None:
    """Run seeds and print those that violate an invariant; exit code 1 if any does."""
    first, last = _range_of(seeds)
    failed = 0
    for result in run_seeds(first, last, processes):
        if result.violation:
            failed += 1
            typer.echo(f"seed {result.seed}: {result.violation}")
    typer.echo(f"{last - first} seeds, {failed} failed")
    if failed:
        raise typer.Exit(1)


@app.command()
def replay(seed: Seed) -> None:
    """Run one seed and print its trace: every commit, fault, request, start and end."""
    result = _traced(_scenario_of(seed))
    for line in result.lines:
        typer.echo(line)
    typer.echo(f"trace {result.digest}")
    if result.violation:
        typer.echo(f"seed {result.seed}: {result.violation}")
        raise typer.Exit(1)


@app.command()
def shrink(seed: Seed) -> None:
    """Print the least scenario that fails as this seed does, what happened to the job, and a test to paste."""
    scenario = _scenario_of(seed)
    with silenced():
        violation = run(scenario).violation
        if violation is None:
            typer.echo(f"seed {scenario.seed} violates nothing")
            return
        least = shrunk(scenario, violation.name)
    result = _traced(least)
    for fault in least.faults:
        typer.echo(f"{fault.at_s:.3f} s: {fault.kind} of {fault.target} for {fault.lasts_s:g} s, {fault.amount:g}")
    for line in result.lines:
        typer.echo(line)
    typer.echo(str(result.violation))
    typer.echo(f"\n# save as tests/faults/museum/NAME.json; tests/faults/test_museum.py runs it\n{as_json(least)}")


def _traced(scenario: Scenario) -> RunResult:
    with silenced():
        return run(scenario, keeps_lines=True)


def _scenario_of(seed: str) -> Scenario:
    if seed.isdigit():
        return draw(int(seed))
    path = Path(seed)
    if not path.is_file():
        raise typer.BadParameter(f"{seed!r} is neither a seed nor a file")
    return scenario_of(path.read_text())


def _range_of(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise typer.BadParameter(f"cannot read {text!r}; write FIRST:LAST, as 0:500")
    return int(first), int(last)
