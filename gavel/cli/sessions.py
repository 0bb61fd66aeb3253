"""Commands for interactive sessions: start, reserve and extend one, attach to it, reach its ports."""

import random
from collections.abc import Iterable
from typing import Annotated, cast

import typer
from typer.core import TyperGroup

from gavel.cli import show
from gavel.cli.attach import NoTerminal
from gavel.cli.attach import attach as attached
from gavel.cli.connection import Json, app, connect, fail, used_connection
from gavel.cli.jobs import job_commands
from gavel.cli.port_forward import forward, ports_of
from gavel.cli.reaching import TERMINAL
from gavel.cli.resolving import JobId
from gavel.cli.submit_options import seconds_of
from gavel.cli.table import Rows
from gavel.client import Reservation

JUPYTER_PORTS = range(20_000, 30_000)  # one by chance: sessions of one machine share its ports
JUPYTER = ("python", "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--ServerApp.port_retries=0")
SHELL = ("python", "-m", "gavel_runtime.terminal")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def interactive(
    context: typer.Context,
    jupyter: Annotated[bool, typer.Option("--jupyter", help="Run JupyterLab, of the job's interpreter.")] = False,
    shell: Annotated[bool, typer.Option("--shell", help="Run a shell, and attach this terminal to it.")] = False,
) -> None:
    """Submit an interactive session, wait until it runs, forward its port and print the address.

    gavel interactive --jupyter --longest 2h --idle 30m

    gavel interactive --shell --longest 2h

    gavel interactive --forward 6006 tensorboard --logdir runs --port 6006

    gavel interactive --jupyter --longest 2h --at 2026-12-01T09:00

    All options of `gavel job submit` may follow, before the command.
    """
    wanted = ["--mode", "interactive", *context.args]
    if jupyter:
        port = str(random.choice(JUPYTER_PORTS))  # noqa: S311  nothing secret
        wanted = ["--forward", f"{port}:0", *wanted, *JUPYTER, f"--port={port}"]
    elif shell:
        wanted = ["--forward", TERMINAL, *wanted, *SHELL]
    root = context.find_root()
    submit = cast(TyperGroup, root.command).get_command(root, "submit")
    if submit is not None:
        with submit.make_context("submit", wanted, parent=root) as inner:
            submit.invoke(inner)


@job_commands.command()
def extend(
    job_id: JobId,
    time: Annotated[str, typer.Argument(metavar="TIME", help="By how much longer it lasts, such as 90m or 2h.")],
    as_json: Json = False,
) -> None:
    """Let an interactive session last longer, up to the most that its tier allows.

    gavel job extend ID 2h
    """
    by_s = seconds_of("TIME", time)
    with connect() as client:
        show.answer(client.extend_session(job_id, by_s=by_s), as_json, show.job)


@app.command()
def reservations(as_json: Json = False) -> None:
    """List the workers that sessions have reserved (`--at`), and from when until when; others' without their names.

    `gavel job cancel ID` gives one back.
    """
    with connect() as client:
        show.answer(client.reservations(), as_json, reservation_table)


def reservation_table(items: Iterable[Reservation]) -> Rows:
    """Return one line per reservation."""
    table = Rows("FROM", "TO", "WORKERS", "JOB", "USER", "NAME", spare=("NAME",))
    for each in items:
        workers = f"{each['workers']} {each['accelerator_type']}"
        whose = [show.harmless(each[name] or "-") for name in ("job_id", "user", "name")]
        table.add_row(show.instant(each["reserved_at_s"]), show.instant(each["ends_at_s"]), workers, *whose)
    return table


@app.command()
def attach(job_id: JobId) -> None:
    """Attach this terminal to the shell of a running session. Ctrl-] leaves it, and the shell goes on.

    gavel interactive --shell

    gavel attach ID

    It ends as the shell does: with its exit status; 0 after Ctrl-], 255 if the connection was lost.
    """
    with connect() as client:
        job = client.job(job_id)
    try:
        raise typer.Exit(attached(used_connection(), job["id"]))
    except NoTerminal as why:
        fail(str(why))


@app.command("port-forward")
def port_forward(
    job_id: JobId,
    ports: Annotated[str, typer.Argument(metavar="PORT[:LOCAL]", help="The job's port, and the one to use here.")],
) -> None:
    """Reach a port that a running job listens on, such as that of JupyterLab, at 127.0.0.1 of this machine.

    gavel port-forward ID 8888

    gavel port-forward ID 6006:16006
    """
    port, local = ports_of(ports)
    with connect() as client:
        job = client.job(job_id)
    forward(used_connection(), job["id"], port, local)
