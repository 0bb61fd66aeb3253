"""Completions for the shell: names that the service has. If the service does not answer, none are offered."""

import io
import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from itertools import islice

import typer

from gavel.cli.connection import resolve
from gavel.client import Client, GavelApiError, ServiceUnreachable

TIMEOUT_S = 2.0
JOBS_OFFERED = 50


def offered(names: Callable[[Client], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion function that gives those of `names` which begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        try:
            with redirect_stderr(io.StringIO()):
                service = resolve(os.environ.get("GAVEL_URL"), os.environ.get("GAVEL_TOKEN"))
            with Client(service.url, service.token, TIMEOUT_S) as client:
                return [name for name in names(client) if name.startswith(incomplete)]
        except (typer.Exit, GavelApiError, ServiceUnreachable):
            return []

    return complete


jobs = offered(lambda client: (job["id"] for job in islice(client.jobs(limit=JOBS_OFFERED), JOBS_OFFERED)))
tiers = offered(lambda client: (tier["name"] for tier in client.tiers()))
users = offered(lambda client: (user["name"] for user in client.users()))
nodes = offered(lambda client: (node["name"] for node in client.nodes()))
kinds = offered(lambda client: (kind["name"] for kind in client.catalogue()))
policies = offered(lambda client: (policy["name"] for policy in client.policies()["items"]))
modes = offered(lambda _: ("off", "advise", "auto", "pin"))
measures = offered(lambda client: client.autopilot()["measures"])
compositions = offered(lambda client: client.autopilot()["candidates"])
