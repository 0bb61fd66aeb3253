"""Commands about what jobs leave, `gavel job metrics|files|checkpoints|download`, and about their code: `diff`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from gavel.cli import show
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.download import chosen, save_checkpoint, save_file
from gavel.cli.following import print_log
from gavel.cli.jobs import job_commands
from gavel.cli.metric_export import NotWritten
from gavel.cli.metric_following import MLflow, TensorBoard, targets, write_once
from gavel.cli.resolving import JobId
from gavel.cli.table import Rows
from gavel.client import Checkpoints, JobFiles, JobMetrics, JobUtilization

Points = Annotated[int, typer.Option(min=2, max=1001, help="Most points, evenly chosen, the first and last included.")]
Paths = Annotated[list[str] | None, typer.Argument(metavar="[PATH]..", help="Files or folders; default: all.")]
NO_FILES = "the job has written no file to job.output_dir; its log is `gavel job logs`, its checkpoint --checkpoint"
Into = Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Default: a folder named by the job.")]


@job_commands.command()
def metrics(
    job_id: JobId,
    points: Points = 20,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    as_json: Json = False,
) -> None:
    """Show the metrics that a job has reported, by step, or write them for TensorBoard or MLflow.

    gavel job metrics ID --points 1000 --json

    gavel job metrics ID --tensorboard runs
    """
    with connect() as client:
        if write := targets(tensorboard, mlflow):
            try:
                typer.echo("\n".join(map(str, write_once(client, client.job(job_id), write))))
            except (NotWritten, OSError) as error:
                fail(str(error))
            return
        show.answer(client.job_metrics(job_id, points=points), as_json, _metrics)


@job_commands.command()
def utilization(job_id: JobId, points: Points = 20, as_json: Json = False) -> None:
    """Show CPU cores, memory and GPU of each rank over time: gavel job utilization ID --points 1000 --json"""
    with connect() as client:
        show.answer(client.job_utilization(job_id, points=points), as_json, _utilization)


@job_commands.command()
def diff(job_id: JobId, as_json: Json = False) -> None:
    """Print how the code that a job runs differs from its commit, as `git diff` does: gavel job diff ID | git apply"""
    with connect() as client:
        answer = client.code_diff(job_id)
    print_log([json.dumps(answer) + "\n" if as_json else answer["text"]])


@job_commands.command()
def files(job_id: JobId, as_json: Json = False) -> None:
    """List the files that a job has written to its output folder, `job.output_dir`."""
    with connect() as client:
        show.answer(client.job_files(job_id), as_json, _files)


@job_commands.command()
def checkpoints(job_id: JobId, as_json: Json = False) -> None:
    """List the checkpoints of a job that are kept; it goes on from the accepted one."""
    with connect() as client:
        show.answer(client.job_checkpoints(job_id), as_json, _checkpoints)


@app.command()
@job_commands.command()
def download(
    job_id: JobId,
    paths: Paths = None,
    output: Into = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="The accepted checkpoint, a tar archive, in place of files.")
    ] = False,
) -> None:
    """Download files of a job's output folder: gavel job download ID curves/ model.pt -o results"""
    with connect() as client:
        if checkpoint:
            return typer.echo(save_checkpoint(client, job_id, output or Path(job_id)))
        files = chosen(client.job_files(job_id)["items"], paths or [])
        for file in files:
            typer.echo(save_file(client, job_id, file, output or Path(job_id)))
    if not files:
        typer.echo(NO_FILES, err=True)


def _metrics(curves: JobMetrics) -> RenderableType:
    rows = Rows("STEP", "AT", "TYPE", "LEASE", *curves["names"])
    columns = (curves["steps"], curves["at_s"], curves["accelerator_types"], curves["generations"])
    for index, (step, at_s, accelerator_type, generation) in enumerate(zip(*columns, strict=True)):
        values = (curves["values"][name][index] for name in curves["names"])
        rows.add_row(
            f"{step:,}",
            show.instant(at_s),
            accelerator_type,
            str(generation),
            *("" if value is None else f"{value:.5g}" for value in values),
        )
    if not curves["steps"]:
        rows.caption = "no metric was reported; job.report(loss=0.3) in the program does"
    return rows


def _utilization(used: JobUtilization) -> RenderableType:
    rows = Rows("AT", "LEASE", "RANK", "CPU CORES", "MEMORY", "GPU BUSY", "GPU MEMORY")
    for rank in used["ranks"]:
        columns = (
            *(rank["at_s"], rank["generations"], rank["cpu_cores"], rank["memory_bytes"]),
            *(rank["accelerator_busy"], rank["accelerator_memory_bytes"]),
        )
        for at_s, generation, cores, memory_bytes, busy, held_bytes in zip(*columns, strict=True):
            rows.add_row(
                *(show.instant(at_s), str(generation), str(rank["rank"]), f"{cores:.2f}", _mebibytes(memory_bytes)),
                *("" if busy is None else f"{busy:.0%}", _mebibytes(held_bytes)),
            )
    if not used["ranks"]:
        rows.caption = "no sample yet: the first is taken two seconds after the start; on Ray there are none"
    return rows


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / (1 << 20):,.0f} MiB"


def _files(listing: JobFiles) -> RenderableType:
    rows = Rows("PATH", "BYTES", "AT", long=("PATH",))
    for file in listing["items"]:
        rows.add_row(show.harmless(file["path"]), f"{file['size_bytes']:,}", show.instant(file["modified_at_s"]))
    limit, until_s = listing["limit_bytes"], listing["kept_until_s"]
    notes = [f"{listing['total_bytes']:,} bytes in all" + (f" of {limit:,} that a job may keep" if limit else "")]
    if until_s is not None:
        notes.append(f"kept until {show.instant(until_s)}")
    if listing["left_out"]:
        notes.append(f"{listing['left_out']} links, special files or unreadable names are not shown")
    if listing["is_cut"]:
        notes.append("there are more files than are shown")
    rows.caption = "; ".join(notes)
    return rows


def _checkpoints(kept: Checkpoints) -> RenderableType:
    rows = Rows("CHECKPOINT", "STEP", "BYTES", "WRITTEN IN", "AT", "")
    took_s = {each["name"]: each["written_s"] for each in kept["written"]}
    for each in kept["items"]:
        seconds = took_s.get(each["name"])
        rows.add_row(
            each["name"],
            f"{each['step']:,}",
            f"{each['size_bytes']:,}",
            "" if seconds is None else f"{seconds:.2f} s",
            show.instant(each["written_at_s"]),
            "accepted" if each["is_accepted"] else "",
        )
    return rows
