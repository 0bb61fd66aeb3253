"""Commands about jobs: `gavel job submit|submit-batch|list|show|pause|resume|cancel|logs|events`."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import RenderableType

from gavel.cli import show
from gavel.cli.checkpoints import written_by
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.following import ended, exit_code, goes_on, print_log, watch
from gavel.cli.job_file import Given, JobFile, SubmitCommand, job_file_of, options_given, placed
from gavel.cli.option_texts import pairs
from gavel.cli.program import argv_of, argv_there, check_repository, of_caller, program_of, workdir_of
from gavel.cli.project_file import submit_fields
from gavel.cli.reaching import reach
from gavel.cli.resolving import After, JobId, JobIds, JobIdsIfAny, Keep
from gavel.cli.submit_options import (
    AcceleratorMemory,
    AcceleratorTypes,
    Array,
    At,
    Count,
    Cpus,
    Data,
    DataSet,
    Deadline,
    Dump,
    Env,
    EnvFile,
    File,
    Follow,
    Forward,
    GitRef,
    GitUrl,
    GlobalBatch,
    Idle,
    Image,
    Kind,
    KindArgs,
    Label,
    Longest,
    MaxGlobalBatch,
    Memory,
    Mode,
    Name,
    NodeLabel,
    Notify,
    Plan,
    Preemptible,
    Priority,
    Profile,
    Program,
    Python,
    Regions,
    Repeated,
    Restore,
    Retries,
    ScaleFactor,
    Secret,
    ServiceNeeds,
    Setup,
    Share,
    Sizes,
    Snapshot,
    Speed,
    Steps,
    SubmitTier,
    Wait,
    Weight,
    Workdir,
    stated_by,
)
from gavel.client import Client, Job, JobSubmit

job_commands = typer.Typer(help="Submit jobs; list, follow, explain, change and cancel them.", no_args_is_help=True)
app.add_typer(job_commands, name="job")


@app.command(cls=SubmitCommand, context_settings={"allow_interspersed_args": False})
@job_commands.command(cls=SubmitCommand, context_settings={"allow_interspersed_args": False})
def submit(  # noqa: PLR0913  one option per field of a job
    context: typer.Context,
    *,
    program: Program = None,
    file: File = None,
    profile: Profile = None,
    steps: Steps = None,
    kind: Kind = None,
    kind_args: KindArgs = None,
    name: Name = None,
    tier: SubmitTier = None,
    scale_factor: ScaleFactor = 1,
    sizes: Sizes = "",
    global_batch: GlobalBatch = None,
    max_global_batch: MaxGlobalBatch = None,
    plan: Plan = None,
    weight: Weight = 1.0,
    deadline: Deadline = None,
    workdir: Workdir = Path(),
    snapshot: Snapshot = True,
    git_ref: GitRef = None,
    git_url: GitUrl = None,
    python: Python = None,
    setup: Setup = None,
    dump: Dump = None,
    restore: Restore = None,
    image: Image = None,
    secret: Secret = None,
    data: Data = None,
    env: Env = None,
    env_file: EnvFile = None,
    label: Label = None,
    throughput: Speed = None,
    priority: Priority = None,
    max_retries: Retries = 0,
    after: After = None,
    preemptible: Preemptible = True,
    mode: Mode = "batch",
    service: ServiceNeeds = None,
    longest: Longest = None,
    idle: Idle = None,
    at: At = None,
    accelerator_share: Share = 1.0,
    cpus: Cpus = 1,
    memory: Memory = "0",
    accelerator_types: AcceleratorTypes = "",
    accelerator_memory: AcceleratorMemory = "0",
    node_label: NodeLabel = None,
    region: Regions = None,
    data_set: DataSet = "",
    notify: Notify = None,
    array: Array = None,
    count: Count = None,
    wait: Wait = False,
    follow: Follow = False,
    forward: Forward = None,
    as_json: Json = False,
) -> None:
    """Submit a job. Options of this command stand before the program; all that follows the program is its own.

    gavel job submit --steps 5000 --tier gold --array RATE=0.1,0.01 train.py --lr {RATE}
    """
    given, job_file, folder = _read(context, file, profile, workdir)
    program, argv = _with_argv(program_of(program, job_file.fields, steps), folder, git_ref, git_url, snapshot, given)
    with connect() as client, placed(job_file):
        wanted = job_file.merged({**stated_by(context.params), "argv": argv}, given)
        wanted |= of_caller(client, program, folder, python, snapshot, wanted, git_ref, git_url)
        _submit(client, wanted, array, count, wait or follow, follow, forward, as_json)


def _read(context: typer.Context, file: Path | None, profile: str | None, workdir: Path) -> tuple[Given, JobFile, Path]:
    """Return which options were given, the fields of the job file, and the folder that the program runs in."""
    given, job_file = options_given(context), submit_fields(file, profile)
    return given, job_file, workdir_of(job_file.workdir(workdir, given))


def _with_argv(
    program: list[str], folder: Path, git_ref: str | None, git_url: str | None, snapshot: bool, given: Given
) -> tuple[list[str], list[str] | None]:
    """Return the program, and the command by which it is run where its files are."""
    if git_url is None:
        return program, argv_of(program, folder, is_here=git_ref is None)
    check_repository(git_url, program, snapshot, given)
    return program, argv_there(program)


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
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except ValueError as error:
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
        job = client.job(job_id)
        events = list(client.events(job_id)) if (job["sizes"] or job["plans"]) and not as_json else []
        written = () if as_json else written_by(client, job)
        _tell(client, job, as_json, lambda each, sentence: show.job_with(each, sentence, events, written))


@job_commands.command()
def spec(job_id: JobId, as_json: Json = False) -> None:
    """Print the job file that submits this job again, with the same code: gavel job spec ID > job.yaml."""
    with connect() as client:
        job = client.job(job_id)
    typer.echo(json.dumps(job) if as_json else job_file_of(job).rstrip())


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


@job_commands.command()
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
) -> None:
    """Print what a job wrote."""
    with connect() as client, goes_on(job_id):
        print_log(client.read_logs(job_id, follow=follow))


@job_commands.command()
def events(job_id: JobId, as_json: Json = False) -> None:
    """Show a job's history: every lease, checkpoint, preemption and end."""
    with connect() as client:
        show.answer(list(client.events(job_id)), as_json, show.events)


def _submit(
    client: Client,
    wanted: JobSubmit,
    array: Repeated,
    count: int | None,
    wait: bool,
    follow: bool,
    forward: str | None,
    as_json: bool,
) -> None:
    if forward is not None:
        return reach(client, client.submit(**wanted), forward)
    if array or count:
        return _submit_array(client, wanted, array, count, wait, as_json)
    job = client.submit(**wanted)
    _say_deadline(job)
    if wait:
        job = watch(client, job, follow)
    _tell(client, job, as_json, partial(show.submitted, is_log_shown=follow))
    raise typer.Exit(exit_code(job))


def _submit_array(
    client: Client, wanted: JobSubmit, array: Repeated, count: int | None, is_waiting: bool, as_json: bool
) -> None:
    parameters = {name: values.split(",") for name, values in pairs("--array", array).items()} or None
    if parameters and count:
        fail("--array and --count: give one of them")
    made = client.submit_array(wanted, parameters=parameters, count=count)
    jobs = [ended(client, job["id"]) for job in made["items"]] if is_waiting else made["items"]
    if not as_json:
        typer.echo(f"array {made['array_id']}", err=True)
    show.answer(jobs, as_json, show.jobs)
    raise typer.Exit(max(exit_code(job) for job in jobs))


def _say_deadline(job: Job) -> None:
    if job["deadline"]:
        typer.echo(f"deadline: {job['deadline']['outlook']} ({job['deadline']['message']})", err=True)


def _show(job: Job, as_json: bool) -> None:
    show.answer(job, as_json, show.job)


def _tell(
    client: Client, job: Job, as_json: bool, rendered: Callable[[Job, str], RenderableType] = show.job_with
) -> None:
    """Show a job after the sentence that says where it is, and when it starts or ends."""
    sentence = "" if as_json else client.explain(job["id"])["sentence"]
    show.answer(job, as_json, lambda each: rendered(each, sentence))
