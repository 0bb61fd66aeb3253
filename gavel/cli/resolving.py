"""Which job a text on the command line means: an id, the beginning of one, or a name, if only one job fits."""

import re
from typing import Annotated, Any

import typer

from gavel.cli import completion
from gavel.cli.connection import connect, fail
from gavel.client import Client, Job
from gavel.errors import did_you_mean

WHOLE_ID = re.compile(r"[0-9][0-9a-z]{15}")
ID_OR_NAME = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")
CANDIDATES = 10  # that are shown
NAMES_COMPARED = 100  # of the newest jobs, with one that no job has


def job_id_of(client: Client, text: str) -> str:
    """Return the id of the job that the text means. End the command with the candidates if it means several or none."""
    if WHOLE_ID.fullmatch(text):
        return text
    matches = list(client.jobs(match=text, limit=CANDIDATES + 1)) if ID_OR_NAME.fullmatch(text) else []
    exact = [job for job in matches if job["id"] == text]
    if len(exact or matches) == 1:
        return (exact or matches)[0]["id"]
    fail(_several(text, matches) if matches else _none(client, text))


def _several(text: str, matches: list[Job]) -> str:
    lines = [f"{job['id']}  {job['name']}  {job['state']}" for job in matches[:CANDIDATES]]
    more = ["and more"] if len(matches) > CANDIDATES else []
    return "\n  ".join([f"{text} means several jobs; name one by its id:", *lines, *more])


def _none(client: Client, text: str) -> str:
    names = {job["name"] for job in client.jobs(limit=NAMES_COMPARED)} - {""}
    hint = did_you_mean(text, names) or "; `gavel job list` shows the jobs"
    return f"no job has the id or the name {text}{hint}"


def _resolved(context: typer.Context, value: Any) -> Any:
    """Return ids for what was typed: one text, several, or nothing."""
    if not value or context.resilient_parsing:
        return value
    with connect() as client:
        return job_id_of(client, value) if isinstance(value, str) else [job_id_of(client, each) for each in value]


HELP = "Id of a job, the beginning of one, or a name."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=HELP, autocompletion=completion.jobs, callback=_resolved)]
JobIds = Annotated[
    list[str], typer.Argument(metavar="JOB..", help=HELP, autocompletion=completion.jobs, callback=_resolved)
]
JobIdsIfAny = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB..]", help=HELP, autocompletion=completion.jobs, callback=_resolved)
]
OneJob = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only this job.", callback=_resolved)]
After = Annotated[
    list[str] | None,
    typer.Option(metavar="JOB", help="A job that must complete first; repeatable.", callback=_resolved),
]
Keep = Annotated[
    list[str] | None, typer.Option(metavar="JOB", help="But not this one; repeatable.", callback=_resolved)
]
