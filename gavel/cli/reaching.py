"""Waits for a session that was just submitted, says why it waits, and forwards its port once it runs."""

import re
import time

import typer

from gavel.cli import show
from gavel.cli.attach import NoTerminal, attach
from gavel.cli.connection import fail, used_connection
from gavel.cli.following import INTERRUPTED
from gavel.cli.port_forward import forward, ports_of
from gavel.client import TERMINAL_STATES, Client, Job

POLL_S = 0.5
RUNNING_STATES = ("RUNNING", "PROFILING")
JUPYTER_TOKEN = re.compile(r"[?&]token=([0-9a-f]{16,})")
JUPYTER_LIMIT_S = 120.0  # for JupyterLab to say its token
TERMINAL = "terminal"  # in place of a port
TERMINAL_LIMIT_S = 900.0  # for a job that runs to make its environment, and its terminal


def reach(client: Client, job: Job, ports: str) -> None:
    """Wait until the job runs, then forward its port and print the address, until Ctrl-C. The job goes on then.

    `ports` "terminal": attach to its terminal instead, until the shell ends or is left; end the command as that does.
    Say how a session is reached that is reserved for later, and do not wait.
    """
    if job["reserved_at_s"] is not None:
        return _say_when(job, job["reserved_at_s"], ports)
    if ports == TERMINAL:
        raise typer.Exit(_attach(client, job))
    port, local = ports_of(ports)
    typer.echo(f"submitted {job['id']}", err=True)
    try:
        _wait_until_it_runs(client, job["id"])
        path = _jupyter_path(client, job) if _is_jupyter(job) else "/"
        forward(used_connection(), job["id"], port, local, path)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        again, end = f"gavel port-forward {job['id']} {ports}", f"gavel job cancel {job['id']}"
        typer.echo(f"`{again}` reaches it again while it runs, `{end}` ends it", err=True)


def _say_when(job: Job, reserved_at_s: float, ports: str) -> None:
    again = f"gavel attach {job['id']}" if ports == TERMINAL else f"gavel port-forward {job['id']} {ports}"
    begin, workers = show.instant(reserved_at_s), f"{job['scale_factor']} of {job['reserved_type']}"
    typer.echo(f"reserved {workers} from {begin} for session {job['id']}", err=True)
    typer.echo(f"`{again}` reaches it then, `gavel job cancel {job['id']}` gives the reservation back", err=True)


def _attach(client: Client, job: Job) -> int:
    """Attach to the terminal of the job once it is there; return the exit code of the command."""
    typer.echo(f"submitted {job['id']}; `gavel job cancel {job['id']}` ends it", err=True)
    try:
        _wait_until_it_runs(client, job["id"])
        give_up_at_s = time.monotonic() + TERMINAL_LIMIT_S
        while True:
            try:
                return attach(used_connection(), job["id"])
            except NoTerminal as why:
                if time.monotonic() > give_up_at_s:
                    fail(str(why))
            time.sleep(POLL_S)
            _wait_until_it_runs(client, job["id"])  # ends the command if the job has ended
    except KeyboardInterrupt:
        return INTERRUPTED


def _wait_until_it_runs(client: Client, job_id: str) -> None:
    """Return once the job runs; print why it waits whenever that changes. End the command if it has ended."""
    last_message = ""
    while (job := client.job(job_id))["state"] not in RUNNING_STATES:
        if job["state"] in TERMINAL_STATES:
            fail(f"the job is {job['state']}: {job['message']}\n{show.harmless(job['log_tail'])}".rstrip())
        if job["message"] != last_message:
            last_message = job["message"]
            typer.echo(f"{job['state']}: {last_message}", err=True)
        time.sleep(POLL_S)


def _is_jupyter(job: Job) -> bool:
    return any("jupyter" in word for word in job["argv"])


def _jupyter_path(client: Client, job: Job) -> str:
    """Return the path of JupyterLab with its token, once it has printed it; without it if it does not."""
    give_up_at_s = time.monotonic() + JUPYTER_LIMIT_S
    while time.monotonic() < give_up_at_s:
        if printed := JUPYTER_TOKEN.search(client.logs(job["id"])[0]):
            return f"/lab?token={printed[1]}"
        if client.job(job["id"])["state"] not in RUNNING_STATES:
            fail(f"JupyterLab has ended:\n{show.harmless(client.job(job['id'])['log_tail'])}".rstrip())
        time.sleep(POLL_S)
    return "/lab"
