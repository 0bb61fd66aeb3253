"""Commands about jobs: `gavel job submit|submit-batch|list|show|set|pause|resume|cancel|logs|events`."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import RenderableType

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.resolving import After, JobId, JobIds, JobIdsIfAny, Keep
from gavel.client import TERMINAL_STATES, Client, GavelApiError, Job, JobSubmit, ServiceUnreachable

job_commands = typer.Typer(help="Submit jobs; list, follow, explain, change and cancel them.", no_args_is_help=True)
app.add_typer(job_commands, name="job")

Repeated = list[str] | None
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
UNITS = {
    **{"": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4},
    **{"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
}
SIZE_HINT = "--memory {}: write a size such as 512MiB or 16GiB"
Program = Annotated[
    Repeated,
    typer.Argument(
        metavar="[PROGRAM [ARGUMENT..]]", help="A .py file or any program; its own options follow after --."
    ),
]
Steps = Annotated[int, typer.Option(help="Training steps until the job is complete.")]
Kind = Annotated[
    str | None, typer.Option(help="Job kind: of the catalogue, or user/name.", autocompletion=completion.kinds)
]
Name = Annotated[str | None, typer.Option(help="A name for people.")]
SubmitTier = Annotated[
    str | None, typer.Option(help="One of your tiers; default: your first.", autocompletion=completion.tiers)
]
ScaleFactor = Annotated[int, typer.Option(help="Accelerators the gang needs at once.")]
Weight = Annotated[float, typer.Option(help="Relative to your other jobs in the tier.")]
Deadline = Annotated[float | None, typer.Option(help="Seconds from now until it should be complete.")]
Env = Annotated[Repeated, typer.Option(metavar="NAME=VALUE", help="Environment; repeatable.")]
Label = Annotated[Repeated, typer.Option(metavar="KEY=VALUE", help="Label; repeatable.")]
Speed = Annotated[Repeated, typer.Option(metavar="TYPE=STEPS_PER_S", help="Known speed of the gang; repeatable.")]
Priority = Annotated[int | None, typer.Option(help="Each step doubles the weight; default: the tier's.")]
Retries = Annotated[int, typer.Option(min=0, help="How many times a failed program is started again.")]
Preemptible = Annotated[
    bool, typer.Option(help="Whether rounds may stop it and start it again later, from its last checkpoint.")
]
Cpus = Annotated[int, typer.Option(min=1, help="CPU cores that each of its workers needs.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory that each worker needs: bytes, or 512MiB, 16GiB.")]
Array = Annotated[
    Repeated,
    typer.Option(metavar="NAME=V1,V2,..", help="One job for each value, set in env and put for {NAME}; repeatable."),
]
Count = Annotated[int | None, typer.Option(min=1, help="Submit it so many times, as an array.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when the job has ended, with its exit code.")]
Follow = Annotated[bool, typer.Option("--follow", help="Print its log until it has ended; implies --wait.")]


@job_commands.command()
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
    priority: Priority = None,
    max_retries: Retries = 0,
    after: After = None,
    preemptible: Preemptible = True,
    cpus: Cpus = 1,
    memory: Memory = "0",
    array: Array = None,
    count: Count = None,
    wait: Wait = False,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Submit a job.

    gavel job submit train.py --steps 5000 --tier gold

    gavel job submit --kind mlp-b256 --steps 500 --wait

    gavel job submit --steps 100 -- ./train --rate 0.1

    gavel job submit --steps 100 --array RATE=0.1,0.01 -- ./train --rate {RATE}
    """
    wanted = JobSubmit(
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
        priority=priority,
        max_retries=max_retries,
        after=after or [],
        preemptible=preemptible,
        cpu_cores=cpus,
        memory_bytes=_bytes(memory),
    )
    if array or count:
        return _submit_array(wanted, array, count, wait or follow, as_json)
    with connect() as client:
        job = client.submit(**wanted)
        _say_deadline(job)
        if wait or follow:
            job = _watch(client, job, follow)
        _tell(client, job, as_json, show.submitted)
    raise typer.Exit(_exit_code(job))


@job_commands.command("submit-batch")
def submit_batch(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="JSON: a list of jobs, or one a line. `-`: stdin.")],
    as_json: Json = False,
) -> None:
    """Submit many jobs in one transaction: all of them, or none.

    Each job is an object as `POST /v1/jobs` takes it: {"kind": "mlp-b256", "total_steps": 500, "tier": "gold"}
    """
    try:
        wanted = listed_jobs(sys.stdin.read() if str(path) == "-" else path.read_text())
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    with connect() as client:
        show.answer(client.submit_batch(wanted)["items"], as_json, show.jobs)


def listed_jobs(text: str) -> list[JobSubmit]:
    """Return the jobs of a file: a JSON list, or one object per line. Raise ValueError for anything else."""
    if text.lstrip().startswith("["):
        return cast(list[JobSubmit], json.loads(text))
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@job_commands.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="QUEUED, RUNNING, COMPLETED, ..")] = None,
    user: Annotated[str | None, typer.Option(help="Of this user; operators only.")] = None,
    tier: Annotated[str | None, typer.Option(help="Of this tier.")] = None,
    label: Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="With this label.")] = None,
    array: Annotated[str | None, typer.Option(metavar="ID", help="Of this array.")] = None,
    match: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Whose id begins with it, or whose name it is.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List jobs, newest first, with what each waits for."""
    with connect() as client:
        jobs = list(
            client.jobs(state=state, user=user, tier=tier, label=label, array_id=array, match=match, limit=limit + 1)
        )
    show.answer(jobs[:limit], as_json, show.jobs)
    if len(jobs) > limit:
        typer.echo(f"there are more than these {limit}; see --limit", err=True)


@job_commands.command("show")
def show_job(job_id: JobId, as_json: Json = False) -> None:
    """Show one job: where it is in a sentence, then its progress and what it received."""
    with connect() as client:
        _tell(client, client.job(job_id), as_json)


@job_commands.command()
def cancel(
    job_ids: JobIdsIfAny = None,
    label: Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="All with this label.")] = None,
    array: Annotated[str | None, typer.Option(metavar="ID", help="All of this array.")] = None,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Cancel jobs. Running ones are stopped after a checkpoint.

    gavel job cancel --array ID --keep WINNER
    """
    if not (job_ids or label or array):
        fail("name jobs, or give --label or --array")
    with connect() as client:
        if label or array or keep:
            done = client.cancel_many(job_ids or None, label=label, array_id=array, keep=keep or [])
            return show.answer(done, as_json, show.cancelled)
        for job_id in job_ids or []:
            _show(client.cancel(job_id), as_json)


@job_commands.command()
def pause(job_ids: JobIds, as_json: Json = False) -> None:
    """Pause jobs. Running ones are stopped after a checkpoint, and wait until they are resumed."""
    with connect() as client:
        for job_id in job_ids:
            _show(client.pause(job_id), as_json)


@job_commands.command()
def resume(job_ids: JobIds, as_json: Json = False) -> None:
    """Let paused jobs go on from their checkpoints."""
    with connect() as client:
        for job_id in job_ids:
            _show(client.resume(job_id), as_json)


@job_commands.command("set")
def edit(
    job_id: JobId,
    weight: Annotated[float | None, typer.Option(help="Relative to your other jobs in the tier.")] = None,
    priority: Priority = None,
    label: Annotated[Repeated, typer.Option(metavar="KEY=VALUE", help="Replaces all labels; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Change an unfinished job, from the next round on."""
    if weight is None and priority is None and label is None:
        fail("say what to change: --weight, --priority or --label")
    labels = None if label is None else _pairs("--label", label)
    with connect() as client:
        _show(client.edit(job_id, weight=weight, priority=priority, labels=labels), as_json)


@job_commands.command()
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
) -> None:
    """Print what a job wrote."""
    with connect() as client, _goes_on(job_id):
        _print_log(client.read_logs(job_id, follow=follow))


@job_commands.command()
def events(job_id: JobId, as_json: Json = False) -> None:
    """Show a job's history: every lease, checkpoint, preemption and end."""
    with connect() as client:
        show.answer(list(client.events(job_id)), as_json, show.events)


def _submit_array(wanted: JobSubmit, array: Repeated, count: int | None, is_waiting: bool, as_json: bool) -> None:
    parameters = {name: values.split(",") for name, values in _pairs("--array", array).items()} or None
    if parameters and count:
        fail("--array and --count: give one of them")
    with connect() as client:
        made = client.submit_array(wanted, parameters=parameters, count=count)
        ended = [_ended(client, job["id"]) for job in made["items"]] if is_waiting else made["items"]
    if not as_json:
        typer.echo(f"array {made['array_id']}", err=True)
    show.answer(ended, as_json, show.jobs)
    raise typer.Exit(max(_exit_code(job) for job in ended))


def _say_deadline(job: Job) -> None:
    if job["deadline"]:
        typer.echo(f"deadline: {job['deadline']['outlook']} ({job['deadline']['message']})", err=True)


def argv_of(program: list[str]) -> list[str] | None:
    """Return the program to run: a Python file with python and its absolute path; empty: the catalogue's program."""
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


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+) *([a-z]*)", text.strip().lower())
    try:
        return int(float(match[1]) * UNITS[match[2]]) if match else fail(SIZE_HINT.format(text))
    except (KeyError, ValueError):
        fail(SIZE_HINT.format(text))


def _watch(client: Client, job: Job, follow: bool) -> Job:
    """Return the job once it has ended. What was submitted goes to stderr: stdout has the log or the answer only."""
    typer.echo(f"submitted {job['id']}", err=True)
    with _goes_on(job["id"]):
        if follow:
            _print_log(client.read_logs(job["id"], follow=True))
        return _ended(client, job["id"])


@contextmanager
def _goes_on(job_id: str) -> Iterator[None]:
    """Say on Ctrl-C that only the command ends, not the job."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"gavel: the job goes on; `gavel job logs -f {job_id}` continues, `gavel job cancel {job_id}` ends it",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None


def _ended(client: Client, job_id: str) -> Job:
    """Return the job once it has ended: by the events of its user's jobs, or by polling where there are no events."""
    try:
        for event in client.watch(kinds=["job"]):
            if event["event"] != "job":  # after `hello`: the job may have ended before the stream began
                job = client.job(job_id)
            elif event["data"]["id"] == job_id:
                job = cast(Job, event["data"])
            else:
                continue
            if job["state"] in TERMINAL_STATES:
                return job
    except (GavelApiError, ServiceUnreachable):
        pass
    return client.wait(job_id)


def _print_log(parts: Iterable[str]) -> None:
    """Print log text as it is; on a terminal without control characters."""
    on_terminal = sys.stdout.isatty()
    for part in parts:
        sys.stdout.write(show.harmless(part) if on_terminal else part)
        sys.stdout.flush()


def _show(job: Job, as_json: bool) -> None:
    show.answer(job, as_json, show.job)


def _tell(
    client: Client, job: Job, as_json: bool, rendered: Callable[[Job, str], RenderableType] = show.job_with
) -> None:
    """Show a job after the sentence that says where it is, and when it starts or ends."""
    sentence = "" if as_json else client.explain(job["id"])["sentence"]
    show.answer(job, as_json, lambda each: rendered(each, sentence))


def _exit_code(job: Job) -> int:
    """Return the job's exit code as a shell shows it (128 + signal); 1 if the job has none."""
    if job["state"] not in ("FAILED", "CANCELLED"):
        return 0
    code = job["exit_code"] or 1
    return 128 - code if code < 0 else code
