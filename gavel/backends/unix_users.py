"""Files of jobs that run as Unix users of their own: who owns what, and who may pass. Standard library only.

The service and its supervisors are root then. A job's uid is its gid, too, and nothing else of the machine has either.
What only the job uses belongs to it, closed to others. The folders around it may be passed and not be read. A folder
that a job owns is never written by root through a name that the job could make a link: only made, given and deleted.
"""

import os
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import Any

PASSED = ("gangs", "work", "checkpoints", "outputs", "environments", "inputs", "runtime", "interpreters", "agents")
"""Folders of the state folder in which jobs have something of their own, or all may read."""

CLOSED, PASS, READ = 0o700, 0o711, 0o2750
ACL = "system.posix_acl_access"
ACL_VERSION = struct.Struct("<I")
ACL_ENTRY = struct.Struct("<HHI")  # tag, permissions, id
OWNER, USER, GROUP, MASK, OTHER, NO_ID = 1, 2, 4, 16, 32, 0xFFFFFFFF


def uid_of(launch: Mapping[str, Any]) -> int:
    """Return the uid that the programs of a launch run as; 0: that of the service."""
    return int((launch["ranks"][0].get("runs_as") or {"uid": 0})["uid"])


def open_state(state: str) -> None:
    """Let everybody pass the state folder, and nothing in it but the folders that are for jobs. Raises OSError.

    What is made in it later is closed by the umask of the service.
    """
    for entry in os.scandir(state):
        if entry.name not in PASSED and not entry.is_symlink() and entry.stat().st_mode & 0o077:
            os.chmod(entry.path, entry.stat().st_mode & CLOSED)
    let_pass((state,))


def let_pass(folders: Iterable[str]) -> None:
    """Let everybody pass these folders, to what is in them under a name that they know. Raises OSError."""
    for folder in folders:
        if stat.S_IMODE(os.stat(folder).st_mode) & PASS != PASS:
            os.chmod(folder, PASS)


def give(folder: str, uid: int) -> None:
    """Let a folder of a job belong to a user with all that is in it, closed to others. Raises OSError.

    No link is followed, and a link or a file in its place is left: whoever uses it finds that out.
    """
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        return
    try:
        if os.fstat(place).st_uid != uid:
            for _, folders, files, inside in os.fwalk(".", dir_fd=place):
                for name in (*folders, *files):
                    os.chown(name, uid, uid, dir_fd=inside, follow_symlinks=False)
            os.fchown(place, uid, uid)
        if stat.S_IMODE(os.fstat(place).st_mode) != CLOSED:
            os.fchmod(place, CLOSED)
    finally:
        os.close(place)


def show(folder: str, uid: int) -> None:
    """Let a user read a folder of the service's, and what will be made in it (machine.write_json). Raises OSError."""
    os.chown(folder, -1, uid)
    os.chmod(folder, READ)


def lend(folder: str, uid: int, root: str) -> None:
    """Let a user read a folder of the service's with all that is in it, besides those who may already. Raises OSError.

    By an access control list, as several users may be given one folder. `root`, which it is below, can be passed then.
    """
    if not uid or _may_read(folder, uid):
        return
    around = [folder]
    while around[-1] != root:
        around.append(os.path.dirname(around[-1]))
    let_pass(around[1:])
    for _, _, files, inside in os.fwalk(folder, topdown=False):
        for name in files:
            place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
            try:
                _add(place, uid)
            finally:
                os.close(place)
        _add(inside, uid)


def _may_read(folder: str, uid: int) -> bool:
    return any(tag == USER and each == uid for tag, _, each in _entries(folder))


def _entries(place: str | int) -> list[tuple[int, int, int]]:
    """Return the access control list of what is there, as far as it is more than its mode."""
    try:
        return list(ACL_ENTRY.iter_unpack(os.getxattr(place, ACL)[ACL_VERSION.size :]))
    except OSError:
        return []


def _add(place: int, uid: int) -> None:
    """Let a user read what is open: a folder, or a file."""
    mode = os.fstat(place).st_mode
    may = 5 if stat.S_ISDIR(mode) else 4
    users = {each: right for tag, right, each in _entries(place) if tag == USER} | {uid: may}
    group = next((right for tag, right, _ in _entries(place) if tag == GROUP), mode >> 3 & 7)
    entries = [
        (OWNER, mode >> 6 & 7, NO_ID),
        *((USER, right, each) for each, right in sorted(users.items())),
        (GROUP, group, NO_ID),
        (MASK, may | group, NO_ID),
        (OTHER, mode & 7, NO_ID),
    ]
    os.setxattr(place, ACL, ACL_VERSION.pack(2) + b"".join(ACL_ENTRY.pack(*each) for each in entries))
