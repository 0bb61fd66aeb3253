"""`gavel job purge`."""

from rich.console import RenderableType

from gavel.cli import show
from gavel.cli.connection import Json, connect
from gavel.cli.jobs import job_commands
from gavel.cli.resolving import JobIds
from gavel.client import Purged


@job_commands.command()
def purge(job_ids: JobIds, as_json: Json = False) -> None:
    """Delete ended jobs with all they have left: checkpoints, outputs, logs, work folders, and their history.

    The service deletes all that by itself some time after the end (docs/operating.md).
    """
    with connect() as client:
        for job_id in job_ids:
            show.answer(client.purge(job_id), as_json, _purged)


def _purged(purged: Purged) -> RenderableType:
    return f"{purged['id']} is purged; {purged['freed_bytes']:,} bytes of files are deleted"
