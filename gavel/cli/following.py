"""Following a job on a terminal: its log, until it has ended, and the exit code that it ended with."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import typer

from gavel.cli import show
from gavel.client import TERMINAL_STATES, Client, GavelApiError, Job, ServiceUnreachable

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def watch(client: Client, job: Job, follow: bool) -> Job:
    """Return the job once it has ended. What was submitted goes to stderr: stdout has the log or the answer only."""
    typer.echo(f"submitted {job['id']}", err=True)
    with goes_on(job["id"]):
        if follow:
            print_log(client.read_logs(job["id"], follow=True))
        return ended(client, job["id"])


@contextmanager
def goes_on(job_id: str) -> Iterator[None]:
    """Say on Ctrl-C that only the command ends, not the job."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"gavel: the job goes on; `gavel job logs -f {job_id}` continues, `gavel job cancel {job_id}` ends it",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None


def ended(client: Client, job_id: str) -> Job:
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


def print_log(parts: Iterable[str]) -> None:
    """Print log text as it is; on a terminal without control characters."""
    on_terminal = sys.stdout.isatty()
    for part in parts:
        sys.stdout.write(show.harmless(part) if on_terminal else part)
        sys.stdout.flush()


def exit_code(job: Job) -> int:
    """Return the job's exit code as a shell shows it (128 + signal); 1 if the job has none."""
    if job["state"] not in ("FAILED", "CANCELLED"):
        return 0
    code = job["exit_code"] or 1
    return 128 - code if code < 0 else code
