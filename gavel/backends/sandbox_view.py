"""What a job sees of its node in its sandbox, as arguments of bubblewrap; and which folders it may not name.

Standard library only: a part of the supervisor, which asks once all that the job needs is there.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from gavel.backends.unix_users import uid_of

NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys", "/nix")
"""Folders of the operating system and of what is installed for all: visible to every job, and read-only."""

FOR_USERS = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_DAC_READ_SEARCH")
"""Of root's rights what the first process keeps where programs are users of their own: to start, signal and check."""

OF_THE_KERNEL = ("/proc/sys", "/proc/acpi", "/proc/scsi", "/proc/fs")
OF_ALL = (
    *("/", "/proc", "/dev", "/run", "/tmp", "/var", "/var/tmp", "/var/lib", "/home", "/root", "/boot"),  # noqa: S108
)
"""Folders that hold what is of many users, and are in no sandbox as a whole."""


def refusal(launch: Mapping[str, Any]) -> str:
    """Return why the job cannot have a folder or file that it names; "" if it can have all."""
    if not (launch.get("sandbox") or launch.get("image")):
        return ""
    named = {**launch["named"], **{each: "ro" for each in launch.get("interpreter", ()) if os.path.exists(each)}}
    return next(filter(None, (_problem(launch, path, access) for path, access in named.items())), "")


def _problem(launch: Mapping[str, Any], path: str, access: str, real: str = "") -> str:
    """Return why the job cannot have what the path leads to, which is `real` if it is given."""
    real = real or os.path.realpath(path)
    if _is_private(launch, real):
        return f"{path} is in a folder of the service itself; name another folder"
    if not _may_name(launch, real):
        folders = " ".join(launch["job_folders"]) or "none but their own (job_folders)"
        return f"{path} is outside the folders that jobs may name here: {folders}"
    is_of_system = any(real == each or is_in(real, (each,)) for each in SYSTEM)
    if real in OF_ALL or (access == "rw" and is_of_system):
        return f"{path} is a folder of the system; name one of your own"
    return ""


def environment_of(launch: Mapping[str, Any]) -> dict[str, str]:
    """Return the folder of the environment that the job's setup has made, which the job may change; else nothing."""
    folder = launch["ranks"][0]["env"].get("VIRTUAL_ENV", "") if launch.get("setup") else ""
    return {folder: "rw"} if folder else {}


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Return whether the path is one of the folders, or below one."""
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in folders)


def _is_private(launch: Mapping[str, Any], real: str) -> bool:
    return is_in(real, _real(tuple(launch["hidden"]))) and not is_in(real, launch["own"])


@cache
def _real(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return where paths of the service lead, which does not change while a supervisor is there."""
    return tuple(os.path.realpath(each) for each in paths)


def _may_name(launch: Mapping[str, Any], real: str) -> bool:
    shown = (launch["sandbox"] or {"shown": ()})["shown"]
    return is_in(real, (*launch["job_folders"], *shown))


def open_places(launch: Mapping[str, Any], extra: Mapping[str, str], view: Mapping[str, str]) -> dict[str, int]:
    """Return a descriptor of each folder and file of the view that is the job's or that it names, by path.

    What is open is what the job may have. Whoever puts another folder into its place later cannot change that, and the
    sandbox compares (sandbox_init.py). Raises OSError, also where something else is there already.
    """
    places: dict[str, int] = {}
    try:
        for path in (each for each in view if view[each] != "hidden" and each not in launch["sandbox"]["shown"]):
            if not _is_link_in_root(path):
                places[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
                _check_place(launch, extra, path, view[path], os.readlink(f"/proc/self/fd/{places[path]}"))
    except OSError:
        close_places(places)
        raise
    return places


def close_places(places: dict[str, int]) -> None:
    """Close what `open_places` has opened."""
    while places:
        os.close(places.popitem()[1])


def _check_place(launch: Mapping[str, Any], extra: Mapping[str, str], path: str, access: str, real: str) -> None:
    """Raise OSError unless the job may have what is open: the service's folders for it are no links."""
    folder, name = os.path.split(path)
    is_made_here = path in launch["own"] or path in extra
    if is_made_here and real != os.path.join(os.path.realpath(folder), name):
        raise OSError(f"{path} has been replaced by a link")
    if problem := "" if is_made_here else _problem(launch, path, access, real):
        raise OSError(problem)


def arguments(launch: Mapping[str, Any], view: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments of bubblewrap: namespaces, then what is mounted, a folder before what is in it."""
    sandbox = launch["sandbox"]
    users = FOR_USERS if uid_of(launch) else ()
    yield from (*NAMESPACES, *(word for each in users for word in ("--cap-add", each)), "--proc", "/proc")
    for path in filter(os.path.exists, OF_THE_KERNEL):  # bubblewrap leaves some that root may write
        yield from ("--ro-bind", path, path)
    yield from ("--dev", "/dev", *(("--perms", "1777") if users else ()), "--tmpfs", "/dev/shm", "--tmpfs", "/run")  # noqa: S108
    for place in ("/tmp", "/var/tmp"):  # noqa: S108  the job's own
        yield from (*(_made_around(place, view) if users else ()), "--bind", sandbox["tmp"], place)
    for path in sandbox["devices"]:
        yield from (*(_made_around(path, view) if users else ()), "--dev-bind", path, path)
    for path in sorted(view, key=lambda each: each.split("/")):
        yield from (*(_made_around(path, view) if users else ()), *_mounted(path, view[path]))
    for path in ("/", *(path for path, kind in view.items() if kind == "hidden" and os.path.isdir(path))):
        yield from ("--remount-ro", path)
    yield from ("--chdir", "/")


def view_of(launch: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, str]:
    """Return `rw`, `ro` or `hidden` by path, of what is there and is not in another folder of the same kind.

    `extra`: further folders of the job, `rw` or `ro` by path.
    """
    shown = {path: access for path, access in _shown(launch).items() if os.path.exists(path)}
    around = {**shown, **launch["own"], **extra}
    hidden = {path: "hidden" for path in launch["hidden"] if os.path.exists(path) and is_in(path, around)}
    wanted = {**shown, **hidden, **launch["own"], **extra}
    view: dict[str, str] = {}
    for path in sorted(wanted, key=lambda each: each.split("/")):
        above = _kind_above(path, view)
        is_seen = above in ("rw", "ro") and os.path.islink(path)  # nothing can be mounted on a link; its target is
        if os.path.exists(path) and above != wanted[path] and not is_seen:
            view[path] = wanted[path]
    return view


def _shown(launch: Mapping[str, Any]) -> dict[str, str]:
    """Return what is no folder of the service's: of the node, and what the job names, under both names of a link."""
    named = {each: access for path, access in launch["named"].items() for each in (path, os.path.realpath(path))}
    stated = {**launch["sandbox"]["shown"], **named}
    paths = (*launch["sandbox"]["mentioned"], *_links(launch["cwd"]))
    mentioned = {each for path in paths for each in (path, os.path.realpath(path))}
    new = (each for each in mentioned if each not in OF_ALL and not is_in(each, stated))
    both = {**{each: "ro" for each in new if _may_name(launch, os.path.realpath(each))}, **stated}
    return {path: access for path, access in both.items() if not _is_private(launch, os.path.realpath(path))}


def _links(folder: str) -> list[str]:
    """Return where the links lead that are in the job's working directory, such as one to its data."""
    try:
        linked = [os.readlink(each.path) for each in os.scandir(folder) if each.is_symlink()]
    except OSError:
        return []
    return [os.path.normpath(os.path.join(folder, path)) for path in linked]


def _kind_above(path: str, view: Mapping[str, str]) -> str:
    """Return how the nearest folder that the path is in is mounted; "" if none is."""
    while path not in ("/", ""):
        path = os.path.dirname(path)
        if path in view:
            return view[path]
    return ""


def _made_around(path: str, view: Mapping[str, str]) -> Iterator[str]:
    """Yield what makes the folders around a mount such that every user may pass them: bubblewrap closes its own."""
    parts = path.split("/")
    for count in range(2, len(parts)):
        around = "/".join(parts[:count])
        if around not in view and _kind_above(around, view) not in ("ro", "rw"):
            yield from ("--perms", "0755", "--dir", around)


def _mounted(path: str, kind: str) -> tuple[str, ...]:
    if kind == "hidden":
        return ("--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", "/dev/null", path)
    if _is_link_in_root(path):
        return ("--symlink", os.readlink(path), path)
    return ("--bind" if kind == "rw" else "--ro-bind", path, path)


def _is_link_in_root(path: str) -> bool:
    """Return whether the path is one like /bin where /usr has all."""
    return os.path.islink(path) and os.path.dirname(path) == "/"
