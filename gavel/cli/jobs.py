"""Commands about jobs: submit, jobs, job, cancel, logs, events."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import JobId, Json, app, connect, fail
from gavel.client import Client, Job

Repeated = list[str] | None
Program = Annotated[
    Repeated,
    typer.Argument(metavar="[PROGRAM [ARGUMENT..]]", help="A .py file or any program; options of its own after --."),
]
Steps = Annotated[int, typer.Option(help="Training steps until the job is complete.")]
Kind = Annotated[str | None, typer.Option(help="Job kind: of the catalogue, or user/name.")]
Name = Annotated[str | None, typer.Option(help="A name for people.")]
SubmitTier = Annotated[str | None, typer.Option(help="One of your tiers; default: your first.")]
ScaleFactor = Annotated[int, typer.Option(help="Accelerators the gang needs at once.")]
Weight = Annotated[float, typer.Option(help="Relative to your other jobs in the tier.")]
Deadline = Annotated[float | None, typer.Option(help="Seconds from now until it should be complete.")]
Env = Annotated[Repeated, typer.Option(metavar="NAME=VALUE", help="Environment; repeatable.")]
Label = Annotated[Repeated, typer.Option(metavar="KEY=VALUE", help="Label; repeatable.")]
Speed = Annotated[Repeated, typer.Option(metavar="TYPE=STEPS_PER_S", help="Known speed of the gang; repeatable.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when the job has ended, with its exit code.")]
Follow = Annotated[bool, typer.Option("--follow", help="Print its log meanwhile; implies --wait.")]


@app.command()
def submit(  # noqa: PLR0913  one option per field of a job
    *,
    program: Program = None,
    steps: Steps,
    kind: Kind = None,
    name: Name = None,
    tier: SubmitTier = None,
    scale_factor: ScaleFactor = 1,
    weight: Weight = 1.0,
    deadline: Deadline = None,
    env: Env = None,
    label: Label = None,
    throughput: Speed = None,
    wait: Wait = False,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Submit a job.

    gavel submit train.py --steps 5000 --tier gold

    gavel submit --kind mlp-b256 --steps 500 --wait

    gavel submit --steps 100 -- ./train --rate 0.1
    """
    with connect() as client:
        job = client.submit(
            argv=argv_of(program or []),
            kind=kind,
            name=name,
            total_steps=steps,
            tier=tier,
            scale_factor=scale_factor,
            weight=weight,
            deadline_at_s=None if deadline is None else time.time() + deadline,
            env=_pairs("--env", env),
            labels=_pairs("--label", label),
            throughputs=_speeds(throughput),
        )
        if wait or follow:
            job = _watch(client, job, follow)
        _show(job, as_json)
    raise typer.Exit(_exit_code(job))


@app.command("jobs")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="QUEUED, RUNNING, COMPLETED, ..")] = None,
    user: Annotated[str | None, typer.Option(help="Of this user; operators only.")] = None,
    tier: Annotated[str | None, typer.Option(help="Of this tier.")] = None,
    label: Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="With this label.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List jobs, newest first, with what each waits for."""
    with connect() as client:
        found = list(client.jobs(state=state, user=user, tier=tier, label=label, limit=limit + 1))
    show.answer(found[:limit], as_json, show.jobs)
    if len(found) > limit:
        typer.echo(f"there are more than these {limit}; see --limit", err=True)


@app.command()
def job(job_id: JobId, as_json: Json = False) -> None:
    """Show one job: how far it is, why it waits, what it received."""
    with connect() as client:
        _show(client.job(job_id), as_json)


@app.command()
def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="JOB..", help="Ids of jobs.")], as_json: Json = False
) -> None:
    """Cancel jobs; what runs is stopped after a checkpoint."""
    with connect() as client:
        for job_id in job_ids:
            _show(client.cancel(job_id), as_json)


@app.command()
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
) -> None:
    """Print what a job wrote."""
    with connect() as client:
        _print_log(client.read_logs(job_id, follow=follow))


@app.command()
def events(job_id: JobId, as_json: Json = False) -> None:
    """Tell a job's story: every lease, checkpoint, preemption and end."""
    with connect() as client:
        show.answer(list(client.events(job_id)), as_json, show.events)


def argv_of(program: list[str]) -> list[str] | None:
    """The program to run: a Python file is given to python by its absolute path; nothing means the catalogue's."""
    if not program:
        return None
    if program[0].endswith(".py"):
        path = Path(program[0]).resolve()
        if not path.is_file():
            fail(f"there is no file {path}")
        return ["python", str(path), *program[1:]]
    return program


def _pairs(option: str, given: Repeated) -> dict[str, str]:
    split = [item.partition("=") for item in given or []]
    for name, equals, _ in split:
        if not equals:
            fail(f"{option} {name}: write NAME=VALUE")
    return {name: value for name, _, value in split}


def _speeds(given: Repeated) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in _pairs("--throughput", given).items()}
    except ValueError as error:
        fail(f"--throughput: {error}; write TYPE=STEPS_PER_S, such as avx512=12.5")


def _watch(client: Client, job: Job, follow: bool) -> Job:
    """The ended job; says on stderr what was submitted, so that stdout holds the log or the answer only."""
    typer.echo(f"submitted {job['id']}", err=True)
    if follow:
        _print_log(client.read_logs(job["id"], follow=True))
    return client.wait(job["id"])


def _print_log(parts: Iterable[str]) -> None:
    """Log text as it is; on a terminal without what could steer it."""
    on_terminal = sys.stdout.isatty()
    for part in parts:
        sys.stdout.write(show.harmless(part) if on_terminal else part)
        sys.stdout.flush()


def _show(job: Job, as_json: bool) -> None:
    show.answer(job, as_json, show.job)


def _exit_code(job: Job) -> int:
    return int(job["state"] in ("FAILED", "CANCELLED"))
