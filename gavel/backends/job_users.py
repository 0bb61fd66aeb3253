"""Whether programs of jobs can run as Unix users of their own on a machine: the setting `job_users`."""

import os
import pwd
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from gavel.backends.sandbox import is_sandboxed
from gavel.types.job_uids import uids_of

SUBORDINATE = Path("/etc/subuid")


def problem_of_job_users(setting: str, folder: Path, isolation: str) -> str:
    """Return why no job can run as a user of its own here, and what to do; "" if it can, or none is to.

    `folder`: where service or node keep what jobs use.
    """
    uids = uids_of(setting)
    if not uids:
        return ""
    if os.geteuid() != 0:
        return (
            f"job_users = {setting} needs root, which alone can start programs as other users, and this is uid "
            f"{os.geteuid()}: run it as root, or remove job_users from the settings"
        )
    if taken := next(_taken(uids), ""):
        return f"job_users = {setting} has {taken}: choose uids that nobody has"
    if not is_sandboxed(isolation) and (closed := next(_closed(folder), "")):
        return (
            f"job_users = {setting}, and other users cannot pass {closed}, which their jobs need without a sandbox: "
            f"allow it (chmod o+x {closed}), or install bubblewrap"
        )
    return ""


def _taken(uids: range) -> Iterator[str]:
    """Yield who has some of the uids already: an account, or what an account may use for its containers."""
    yield from (f"uid {each.pw_uid} of the account {each.pw_name}" for each in pwd.getpwall() if each.pw_uid in uids)
    try:
        lines = [line.split(":") for line in SUBORDINATE.read_text().splitlines() if line.count(":") == 2]
    except OSError:
        return
    for name, first, count in lines:
        if int(first) < uids.stop and uids.start < int(first) + int(count):
            yield f"uids from {first} on, which containers of {name} use ({SUBORDINATE})"


def _closed(folder: Path) -> Iterator[Path]:
    """Yield the folders around what jobs use that other users cannot pass; the state folder opens itself."""
    python = Path(os.path.realpath(sys.executable))
    for each in dict.fromkeys((*reversed(folder.resolve().parents), *reversed(python.parents))):
        if each.exists() and not stat.S_IMODE(each.stat().st_mode) & 0o001:
            yield each
