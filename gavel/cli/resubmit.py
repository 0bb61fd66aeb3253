"""The command `gavel job resubmit`."""

import time
from typing import Annotated, Any, cast

import typer

from gavel.cli import show
from gavel.cli.connection import Json, connect
from gavel.cli.following import exit_code, watch
from gavel.cli.jobs import job_commands
from gavel.cli.option_texts import pairs
from gavel.cli.resolving import JobId
from gavel.cli.submit_options import (
    Deadline,
    Env,
    Follow,
    Label,
    MaxRetries,
    Name,
    NewScaleFactor,
    NewWeight,
    Priority,
    Steps,
    SubmitTier,
    Wait,
)
from gavel.client.bodies import JobResubmit


@job_commands.command()
def resubmit(  # noqa: PLR0913  one option per field that may change
    job_id: JobId,
    *,
    steps: Steps = None,
    name: Name = None,
    tier: SubmitTier = None,
    scale_factor: NewScaleFactor = None,
    weight: NewWeight = None,
    priority: Priority = None,
    deadline: Deadline = None,
    max_retries: MaxRetries = None,
    from_checkpoint: Annotated[
        bool, typer.Option("--from-checkpoint", help="Begin with the old job's accepted checkpoint, not at step 0.")
    ] = False,
    env: Env = None,
    label: Label = None,
    wait: Wait = False,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Submit a job again, with the same code and environment; options change what they name, --env adds variables.

    gavel job resubmit JOB --max-retries 3 --env SEED=7

    gavel job resubmit JOB --from-checkpoint --steps 8000
    """
    given: dict[str, Any] = {
        "total_steps": steps,
        "name": name,
        "tier": tier,
        "scale_factor": scale_factor,
        "weight": weight,
        "priority": priority,
        "deadline_at_s": None if deadline is None else time.time() + deadline,
        "max_retries": max_retries,
        "from_checkpoint": from_checkpoint or None,
        "env": pairs("--env", env) or None,
        "labels": None if label is None else pairs("--label", label),
    }
    changes = cast(JobResubmit, {name: value for name, value in given.items() if value is not None})
    with connect() as client:
        job = client.resubmit(job_id, **changes)
        if wait or follow:
            job = watch(client, job, follow)
        sentence = "" if as_json else client.explain(job["id"])["sentence"]
    show.answer(job, as_json, lambda each: show.submitted(each, sentence))
    raise typer.Exit(exit_code(job))
