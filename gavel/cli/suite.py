"""The commands `gavel suite list|write`: workloads of sets of tasks, and one of them as a trace; without a service."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.connection import Json, app, refusals

suite_commands = typer.Typer(
    help="Workloads of jobs that are sets of tasks, to compare policies.", no_args_is_help=True
)
app.add_typer(suite_commands, name="suite")

DEFAULT_JOBS = 24


@suite_commands.command("list")
def list_workloads(*, as_json: Json = False) -> None:
    """List the workloads of the suite, one a line; what they are: docs/simulating.md."""
    from workloads.traces.suite import WORKLOADS

    typer.echo(json.dumps(WORKLOADS) if as_json else "\n".join(WORKLOADS))


@suite_commands.command("write")
def write(
    workload: Annotated[str, typer.Argument(help="One of `gavel suite list`, as fine-memory.")],
    file: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write, one JSON object a line.")],
    *,
    jobs: Annotated[int, typer.Option(min=1, max=10_000, help="Jobs; each is a set of tasks.")] = DEFAULT_JOBS,
    seed: Annotated[int, typer.Option(help="Another seed draws other jobs.")] = 0,
) -> None:
    """Write a workload of the suite as a trace with its cluster, which `gavel simulate --trace FILE` replays.

    gavel suite write fine-memory tasks.jsonl --jobs 24 --seed 1
    """
    from workloads.traces.history import Surroundings, lines_of
    from workloads.traces.suite import cluster, suite

    with refusals():
        tasks = list(suite(workload, jobs=jobs, seed=seed))
    with file.open("w", encoding="utf-8") as out:
        out.writelines(lines_of(tasks, Surroundings(cluster=cluster())))
    typer.echo(f"{jobs} jobs of {len(tasks)} tasks written; simulate them: gavel simulate --trace {file}", err=True)
