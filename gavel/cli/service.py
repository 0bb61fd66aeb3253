"""Commands that start a service, and `gavel version`."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gavel.cli.connection import app, print_version, settings


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: a free one.")] = None,
    policy: Annotated[str | None, typer.Option(help="Cluster-wide policy, see `gavel policy list`.")] = None,
    round_duration_s: Annotated[float | None, typer.Option(help="Length of a round in seconds.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain to serve https with, in PEM form.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    api_only: Annotated[
        bool, typer.Option("--api-only", help="Serve the API only; another process on the database plans.")
    ] = False,
) -> None:
    """Run the service, the scheduler and the dashboard on this machine, until Ctrl-C.

    Of several services on one database one plans. The others serve the API and take over if it fails. Settings are read
    from gavel.toml, then GAVEL_* variables, then these options.
    """
    chosen = settings(
        host=host,
        port=port,
        policy=policy,
        round_duration_s=round_duration_s,
        tls_cert_file=tls_cert,
        tls_key_file=tls_key,
    )

    from gavel.daemon.service import serve as serve_until_stopped

    raise typer.Exit(serve_until_stopped(chosen, is_api_only=api_only))


@app.command()
def demo(
    backend: Annotated[
        Literal["local", "ray", "slurm", "kubernetes"],
        typer.Option(help="This machine, or a Ray, Slurm or Kubernetes cluster of three nodes started on it."),
    ] = "local",
    autopilot: Annotated[
        bool,
        typer.Option("--autopilot", help="Let the autopilot choose the policy for tasks that change their nature."),
    ] = False,
    elastic: Annotated[
        bool, typer.Option("--elastic", help="Compare jobs that grow and shrink with the same jobs at one size.")
    ] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Let trainings, a session and a service share this machine.")
    ] = False,
) -> None:
    """Start a service of its own, train real models on it and show how they were scheduled."""
    if autopilot + elastic + mixed > 1:
        raise typer.BadParameter("each is a demo of its own; leave all but one of --autopilot, --elastic, --mixed out")
    if (autopilot or elastic or mixed) and backend != "local":
        raise typer.BadParameter("this demo runs on this machine only; leave --backend out")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: what was started is stopped
    if autopilot:
        from gavel.demo.autopilot import main as autopilot_main

        raise typer.Exit(autopilot_main())
    if elastic:
        from gavel.demo.elastic import main as elastic_main

        raise typer.Exit(elastic_main())
    if mixed:
        from gavel.demo.mixed import main as mixed_main

        raise typer.Exit(mixed_main())
    from gavel.demo import main

    raise typer.Exit(main(backend))


@app.command()
def version() -> None:
    """Print the version."""
    print_version()
