"""The code version of a job: whether all of it is stored, and which versions nobody needs any more."""

import shutil
from concurrent.futures import Future

from api.http.errors import invalid
from api.schemas.code import CodeFetch, CodeOfJob, FetchedCodeView
from api.services import Services
from gavel.backends.containers import SEARCH, image_command
from gavel.backends.git_fetch import SECRETS, GitCode, ref_problem, url_problem
from gavel.backends.nodes.housekeeping import clear
from gavel.backends.output import Mask
from gavel.backends.secret_store import missing_secret
from gavel.code_tree import CUT_LINE, DIFF_BYTES
from gavel.errors import InvalidRequest
from gavel.ports import JobFilter
from gavel.types import JobId, JobState

UNFINISHED = tuple(state for state in JobState if not state.is_terminal)


def check_image(image: str | None, services: Services) -> None:
    """Raise a 422 problem where the only node is this machine, and it cannot run images."""
    command = image_command(services.settings.image_command.split())[0]
    if image and services.settings.backend == "local" and shutil.which(command, path=SEARCH) is None:
        raise invalid("image", f"{command} is on no node; an operator installs it, or leave the image out")


def check_code(code: CodeOfJob | None, services: Services) -> None:
    """Mark the code version as used. Raise a 422 problem unless all of it is stored."""
    if code is None:
        return
    if code.git_url and (problem := url_problem(code.git_url, services.git.limits)):
        raise invalid("code.git_url", problem)
    try:
        services.code.use(code.digest)
        if code.diff:
            services.code.use_diff(code.diff)
    except InvalidRequest as error:
        raise invalid(error.field, error.message) from None


def clear_unused(services: Services) -> None:
    """Delete what no unfinished job runs and nobody has used for long; at most once an hour."""
    if services.code.is_clear_due():
        settings = services.settings
        clear(settings.state_dir.resolve(), _unfinished(services), settings.keep_code_s)


def begin_fetch(body: CodeFetch, user: str, services: Services) -> Future[GitCode]:
    """Return the fetch of code from git. Raise a 422 problem for what is not fetched, 429 for too many at a time."""
    if problem := url_problem(body.git_url, services.git.limits):
        raise invalid("git_url", problem)
    if problem := ref_problem(body.git_ref):
        raise invalid("git_ref", problem)
    if name := services.secrets.missing(user, body.secrets):
        raise invalid("secrets", missing_secret(name))
    values = services.secrets.values(user, [name for name in body.secrets if name in SECRETS])
    clear_unused(services)
    return services.git.ask(user, body.git_url, body.git_ref, values)


def fetched(body: CodeFetch, user: str, services: Services, fetch: Future[GitCode]) -> FetchedCodeView:
    """Return the code that a fetch has stored. Raise a 422 problem with the words of git, or for a missing script."""
    services.git.forget(user, body.git_url, body.git_ref)
    try:
        code = fetch.result()
    except InvalidRequest as refusal:
        raise invalid(refusal.field, refusal.message) from None
    if body.script and body.script not in {each.path for each in services.code.files(code.digest)}:
        raise invalid("argv", f"there is no file {body.script} in {body.git_url} at {body.git_ref}")
    return FetchedCodeView(digest=code.digest, commit=code.commit, git_url=body.git_url, git_ref=body.git_ref)


def without_lost_diff(code: CodeOfJob | None, services: Services) -> CodeOfJob | None:
    """Return the code of a job that is submitted again, without a diff that was deleted meanwhile."""
    try:
        if code is not None and code.diff:
            services.code.use_diff(code.diff)
    except InvalidRequest:
        return code and code.model_copy(update={"diff": ""})
    return code


def store_diff(text: bytes, user: str, services: Services) -> str:
    """Store how a user's code differs from a commit; return its digest. Raise a 422 problem for one that is too long.

    It is masked before it is written, as logs are: here all secrets of the user are, whatever the job will name.
    """
    if len(text) > DIFF_BYTES + len(CUT_LINE):
        raise invalid("body", f"a diff has at most {DIFF_BYTES:,} bytes; cut it after a whole line")
    names = [each.name for each in services.secrets.names(user)]
    mask = Mask(services.secrets.values(user, names).values())
    return services.code.put_diff(mask.cover(text, is_last=True), user)


def _unfinished(services: Services) -> dict[JobId, tuple[str, ...]]:
    """Return the unfinished jobs, each with the digests of what is stored for its code."""
    digests: dict[JobId, tuple[str, ...]] = {}
    cursor: JobId | None = None
    while True:
        page = services.store.jobs(JobFilter(states=UNFINISHED), cursor=cursor, limit=200)
        digests |= {job.id: job.spec.code.stored if job.spec.code else () for job in page.jobs}
        if (cursor := page.next_cursor) is None:
            return digests
