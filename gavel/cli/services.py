"""Commands for inference services: `gavel job endpoints` prints where replicas are reached, also for HAProxy."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from gavel.cli import show
from gavel.cli.connection import Json, connect, fail
from gavel.cli.jobs import job_commands
from gavel.cli.resolving import JobId
from gavel.client import Job
from gavel.client.answers import Endpoint


class Form(StrEnum):
    """In which form endpoints are printed."""

    TABLE = "table"
    PROMETHEUS = "prometheus"
    HAPROXY = "haproxy"


@job_commands.command()
def endpoints(
    job_id: JobId,
    form: Annotated[
        Form, typer.Option("--format", help="prometheus: HTTP service discovery; haproxy: a configuration.")
    ] = Form.TABLE,
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="Where HAProxy listens.")] = "127.0.0.1:8000",
    as_json: Json = False,
) -> None:
    """Print where the ready replicas of a service are reached.

    gavel job endpoints ID --format haproxy > /etc/haproxy/haproxy.cfg
    """
    with connect() as client:
        if form is Form.PROMETHEUS:
            typer.echo(json.dumps(client.scrape_targets(job_id), indent=2))
            return
        there = client.endpoints(job_id)
        if form is Form.HAPROXY:
            typer.echo(haproxy(client.job(job_id), there, bind), nl=False)
            return
    show.answer(there, as_json, _table)


def _table(there: list[Endpoint]) -> Table:
    table = Table("replica", "address", "version", box=None)
    for each in there:
        table.add_row(each["job_id"], each["address"], str(each["version"]))
    return table


def haproxy(job: Job, there: list[Endpoint], bind: str) -> str:
    """Return a configuration of HAProxy that listens at `bind` and sends requests to these endpoints only.

    HAProxy checks them as the service does, and repeats a request that could not be connected on another one.
    """
    service = job["service"]
    if service is None:
        fail(f"job {job['id']} is no service; submit one with --mode service")
    check = service["readiness"]
    often = f"check inter {round(check['interval_s'] * 1000)}ms fall {check['failures']} rise 1"
    servers = "".join(f"    server {each['job_id']} {each['address']} {often}\n" for each in there)
    how = f"    option httpchk GET {check['path']}\n" if check["path"] else ""
    return HAPROXY.format(bind=bind, how=how, servers=servers, drain_s=max(1, round(service["drain_s"])))


HAPROXY = """global
    hard-stop-after {drain_s}s
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    retries 3
    retry-on conn-failure
    option redispatch 1
frontend service
    bind {bind}
    default_backend replicas
backend replicas
    balance leastconn
{how}{servers}"""
