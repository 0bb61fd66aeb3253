"""Commands for interactive sessions: `gavel job extend`, `gavel port-forward`."""

from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect, used_connection
from gavel.cli.jobs import job_commands
from gavel.cli.port_forward import forward, ports_of
from gavel.cli.resolving import JobId
from gavel.cli.submit_options import seconds_of


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
