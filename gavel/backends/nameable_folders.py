"""In which folders of their node the jobs of a user may name files: the setting `job_folders`, and what stands without.

Who has the operator's token of the state folder acts as the service's own account, so the jobs of that user may name
what this account can read, unless the setting says otherwise. Those of other users may not.
"""

import os

from gavel.backends.sandbox import is_sandboxed
from gavel.backends.sandbox_mounts import common_folders
from gavel.backends.sandbox_view import is_in
from gavel.config import Settings
from gavel.types.people import OPERATOR

ANYWHERE = "/"


def job_folders_of(setting: str, user: str) -> tuple[str, ...]:
    """Return the folders that the setting gives to the jobs of a user."""
    if not setting.strip():
        return (ANYWHERE,) if user == OPERATOR else ()
    return tuple(each.replace("{user}", user) for each in setting.split())


def is_bounded(settings: Settings, *, has_image: bool = False) -> bool:
    """Return whether anything keeps a job to these folders on this machine: a sandbox, or a container."""
    return has_image or is_sandboxed(settings.isolation)


def nameable_folders(settings: Settings, user: str, *, has_image: bool = False) -> list[str]:
    """Return the folders of this machine in which a job of the user may name files, those of the system included."""
    if not is_bounded(settings, has_image=has_image):
        return [ANYWHERE]
    shown = () if has_image else common_folders(settings.sandbox_folders.split())
    return sorted({*job_folders_of(settings.job_folders, user), *shown})


def may_name(folders: list[str], path: str, *, is_program: bool = False) -> bool:
    """Return whether the path leads into one of the folders; of a program, which may be a link, its folder does."""
    real = os.path.realpath(os.path.dirname(path) if is_program else path)
    return is_in(real, folders)
