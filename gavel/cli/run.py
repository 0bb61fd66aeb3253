"""The command `gavel run SCRIPT`: a preemption test for users, without a service."""

import json
import math
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from gavel.cli.connection import app, fail
from gavel.cli.program import argv_of, python_of
from gavel.cli.submit_options import Program

EXIT_PREEMPTED = 75
TAIL_CHARACTERS = 2000
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
REPORT = "call job.report(loss=..) in each step"
Reports = list[dict[str, Any]]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    *,
    program: Program = None,
    kills: Annotated[int, typer.Option(min=1, max=100, help="How often it is stopped and resumed.")] = 3,
    seed: Annotated[int, typer.Option(help="Chooses the steps at which it is stopped.")] = 0,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest relative difference of a metric.")] = 1e-6,
) -> None:
    """Test here whether a script survives preemption: it runs once in one piece, and once stopped at random steps.

    gavel run --kills 3 train.py --lr 0.1

    Exit code 0: every metric that it reports (job.report) is the same in both; 1: not; 2: it could not be tested.
    Of a program that reports none, the numbers in the last line that it prints are compared.
    """
    argv = argv_of(program or [])
    if argv is None:
        fail("name a script: gavel run train.py")
    python = python_of(None, Path.cwd(), os.environ, is_here=True)
    argv = [python, *argv[1:]] if python and argv[0] == "python" else argv
    folder = Path(tempfile.mkdtemp(prefix="gavel-run-"))
    try:
        output, whole = _in_one_piece(argv, folder / "whole")
        stops = _stops(whole[-1]["step"], kills, seed)
        resumed_output, parts = _in_parts(argv, folder / "parts", stops)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    message, is_same = compared(whole, parts, tolerance) or compared_ends(output, resumed_output, tolerance)
    typer.echo(f"{message} It was stopped before steps {', '.join(map(str, stops))} of {whole[-1]['step']}.")
    raise typer.Exit(0 if is_same else 1)


def compared(whole: Reports, parts: Reports, tolerance: float) -> tuple[str, bool] | None:
    """Return a sentence on the metrics reported at the same steps, and whether all agree; None if there are none."""
    first = {report["step"]: report["metrics"] for report in whole if report.get("metrics")}
    pairs = [
        (report["step"], name, first[report["step"]][name], value)
        for report in parts
        if report["step"] in first
        for name, value in report.get("metrics", {}).items()
        if name in first[report["step"]]
    ]
    if not pairs:
        return None
    for step, name, before, after in sorted(pairs):
        if not _is_close(before, after, tolerance):
            what = f"after step {step} {name} is {after:g} in place of {before:g}"
            return f"It does not continue as it should: {what}. Something of its state is not saved.", False
    return f"It survives preemption: {len(pairs)} reported values are the same in one piece and in parts.", True


def compared_ends(whole: str, parts: str, tolerance: float) -> tuple[str, bool]:
    """Return a sentence on the numbers in the last printed lines, and whether all agree within the tolerance."""
    line, resumed = ((text.strip().splitlines() or [""])[-1] for text in (whole, parts))
    numbers, others = ([float(each) for each in NUMBER.findall(each)] for each in (line, resumed))
    if not numbers:
        return f"It resumes, but there is nothing to compare: {REPORT}.", True
    pairs = zip(numbers, others, strict=False)
    if len(numbers) == len(others) and all(_is_close(before, after, tolerance) for before, after in pairs):
        return f"It survives preemption: its last line is the same in one piece and in parts: {line}.", True
    return (
        f"It does not continue as it should: its last line is '{resumed}' in place of '{line}'. If these are results, "
        f"something of its state is not saved; to have the step named, {REPORT}.",
        False,
    )


def _is_close(before: float, after: float, tolerance: float) -> bool:
    return math.isclose(before, after, rel_tol=tolerance, abs_tol=1e-12)


def _in_one_piece(argv: list[str], folder: Path) -> tuple[str, Reports]:
    typer.echo("running it in one piece", err=True)
    code, output, reports = _gang(argv, folder, 1, {})
    if code != 0:
        fail(f"it ended with exit code {code} before it was stopped at all. It wrote:\n{output}")
    if not reports:
        fail("it takes no steps from gavel_runtime, so it cannot be preempted; see: gavel init")
    if reports[-1]["step"] < 2:
        fail("it has fewer than two steps, so there is nothing to stop between")
    return output, reports


def _in_parts(argv: list[str], folder: Path, stops: list[int]) -> tuple[str, Reports]:
    reports: Reports = []
    output = ""
    resume: dict[str, str] = {}
    for generation, stop in enumerate([*stops, None], start=1):
        typer.echo(f"running it up to step {stop}" if stop else "running it to its end", err=True)
        own = resume if stop is None else {**resume, "GAVEL_STOP_STEP": str(stop)}
        code, output, new = _gang(argv, folder, generation, own)
        reports += new
        if code != (0 if stop is None else EXIT_PREEMPTED):
            fail(f"it ended with exit code {code} after {generation - 1} resumptions. It wrote:\n{output}")
        kept = [report for report in new if report.get("checkpoint")]
        if stop is not None and not kept:
            fail("it was stopped and wrote no checkpoint: pass checkpoint= and restore= to job.steps")
        if kept:
            path = folder / "checkpoints" / kept[-1]["checkpoint"]
            resume = {"GAVEL_CHECKPOINT": str(path), "GAVEL_START_STEP": str(kept[-1]["step"])}
    return output, reports


def _stops(total: int, kills: int, seed: int) -> list[int]:
    """Return the steps to stop before, in order, each once."""
    choice = random.Random(seed)  # noqa: S311  nothing secret
    return sorted(choice.sample(range(1, total), min(kills, total - 1)))


def _gang(argv: list[str], folder: Path, generation: int, own: Mapping[str, str]) -> tuple[int, str, Reports]:
    """Run the script as a gang of one; return its exit code, the end of its output, and its reports."""
    from gavel.backends.meeting import place_of_rank, reserve_meeting_place
    from gavel.backends.runtime import runtime_dir

    place = place_of_rank(0, 1, local_rank=0, local_world_size=1, node_rank=0)
    reserved = reserve_meeting_place({"reserve_port": True, "ranks": [{"env": place}]})
    directory = folder / f"gang-{generation}"
    directory.mkdir(parents=True)
    runtime = str(runtime_dir(folder))
    environment = {
        **os.environ,
        **place,
        "PYTHONPATH": ":".join(filter(None, (runtime, os.environ.get("PYTHONPATH")))),
        "GAVEL_JOB_ID": "run",
        "GAVEL_GENERATION": str(generation),
        "GAVEL_RANK": "0",
        "GAVEL_WORLD_SIZE": "1",
        "GAVEL_GANG_DIR": str(directory),
        "GAVEL_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "GAVEL_START_STEP": "0",
        "GAVEL_TOTAL_STEPS": "",
        "GAVEL_LEASE_EXPIRES_BOOTTIME_S": repr(time.clock_gettime(time.CLOCK_BOOTTIME) + 10**8),
        "GAVEL_REPORT_EVERY_S": "0",
        **own,
    }
    output = folder / f"output-{generation}"
    with reserved or nullcontext(), output.open("wb") as file:
        ran = subprocess.run(argv, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
    path = directory / "reports.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    text = output.read_text(encoding="utf-8", errors="replace")
    return ran.returncode, text[-TAIL_CHARACTERS:], [json.loads(line) for line in lines]
