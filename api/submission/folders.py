"""The folders and files that a job names on its node: whether its user's jobs may."""

from api.http.errors import invalid
from api.schemas import JobSubmit
from api.services import Services
from gavel.backends.inputs import local_path
from gavel.backends.nameable_folders import job_folders_of, may_name, nameable_folders

SCRIPTS = (".py", ".sh")
INSTEAD = {
    "argv": "submit it with gavel job submit, which copies it and what is beside it",
    "workdir": "let its files be copied (leave out --no-snapshot)",
    "python": "leave it out, or make an environment by --setup",
    "data": "give a URL",
}


def check_folders(body: JobSubmit, user: str, services: Services) -> None:
    """Raise a 422 problem for a path outside the folders that jobs of the user may name, where that is known here.

    The nodes of a Ray cluster look at their own paths, when the job starts.
    """
    if services.settings.backend != "local":
        return
    workdir = {"workdir": body.workdir} if body.workdir and not body.code else {}
    named = workdir | ({"python": body.python} if body.python else {})
    named |= {f"data.{name}": path for name, source in body.data.items() if (path := local_path(source))}
    named |= {f"argv.{place}": path for place, path in enumerate(program_files(body))}
    folders = nameable_folders(services.settings, user, has_image=bool(body.image)) if named else []
    for place, path in named.items():
        field = "argv" if place.startswith("argv.") else place
        if not may_name(folders, path, is_program=field in ("python", "argv")):
            raise invalid(field, _refusal(field, path, job_folders_of(services.settings.job_folders, user)))


def program_files(body: JobSubmit) -> list[str]:
    """Return the files of the node that the program is in, by their whole paths: its first word, and its script."""
    words = [] if body.image else list(body.argv or ())[:2]
    return [word for word in words if word.startswith("/") and (word == words[0] or word.endswith(SCRIPTS))]


def _refusal(field: str, path: str, folders: tuple[str, ...]) -> str:
    named = (
        f"those that your jobs may name ({' '.join(folders)})" if folders else "the job's own, and yours may name none"
    )
    instead = INSTEAD[field.partition(".")[0]]
    return f"{path} is outside the folders of {named}; {instead}, or ask an operator to add its folder to job_folders"
