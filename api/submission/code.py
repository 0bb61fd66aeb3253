"""The code version of a job: whether all of it is stored, and which versions nobody needs any more."""

import shutil

from api.http.errors import invalid
from api.schemas.code import CodeOfJob
from api.services import Services
from gavel.backends.containers import SEARCH
from gavel.backends.ray.housekeeping import clear
from gavel.errors import InvalidRequest
from gavel.ports import JobFilter
from gavel.types import JobId, JobState

UNFINISHED = tuple(state for state in JobState if not state.is_terminal)


def check_image(image: str | None, services: Services) -> None:
    """Raise a 422 problem where the only node is this machine, and it cannot run images."""
    command = services.settings.image_command.split()[0]
    if image and services.settings.backend == "local" and shutil.which(command, path=SEARCH) is None:
        raise invalid("image", f"{command} is on no node; an operator installs it, or leave the image out")


def check_code(code: CodeOfJob | None, services: Services) -> None:
    """Mark the code version as used. Raise a 422 problem unless all of it is stored."""
    if code is None:
        return
    try:
        services.code.use(code.digest)
    except InvalidRequest as error:
        raise invalid(error.field, error.message) from None


def clear_unused(services: Services) -> None:
    """Delete what no unfinished job runs and nobody has used for long; at most once an hour."""
    if services.code.is_clear_due():
        settings = services.settings
        clear(settings.state_dir.resolve(), _unfinished(services), settings.keep_code_s)


def _unfinished(services: Services) -> dict[JobId, str]:
    """Return the unfinished jobs, each with the digest of the code version that it runs ("": none)."""
    digests: dict[JobId, str] = {}
    cursor: JobId | None = None
    while True:
        page = services.store.jobs(JobFilter(states=UNFINISHED), cursor=cursor, limit=200)
        digests |= {job.id: job.spec.code.digest if job.spec.code else "" for job in page.jobs}
        if (cursor := page.next_cursor) is None:
            return digests
