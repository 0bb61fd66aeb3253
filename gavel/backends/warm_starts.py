"""Programs that are started before their lease, as the service keeps them: a folder and a supervisor for each.

They hold nothing but memory. Only the service that started them can begin their lease; if it ends, so do they.
"""

import os
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.gang import SUPERVISE, GangKey, spawn
from gavel.backends.gang_files import give_gang_folder, make_gang_folder, remove_gang_folder
from gavel.backends.unix_users import uid_of
from gavel.backends.warm_ranks import GO, WAITING
from gavel.ports import LaunchGang

INTERPRETER = re.compile(r"python(3(\.\d+)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmGang:
    """One gang that waits for its launch; `pid` is that of its supervisor, `home` the gang's folder."""

    instruction: LaunchGang
    folder: Path
    home: Path
    pid: int

    def begin(self) -> int | None:
        """Begin the lease, after launch.json was written; return the supervisor's pid, None if it has given up."""
        if machine.start_time(self.pid) is None:
            return None
        try:
            os.rename(self.folder / WAITING, self.folder / GO)
        except FileNotFoundError:
            return None
        return self.pid

    def give_up(self) -> None:
        """Let the supervisor end everything, if the lease was not begun."""
        (self.folder / WAITING).unlink(missing_ok=True)


class WarmStarts:
    """The gangs of this service that wait for their launch. A rank is started only with `memory_bytes` free for it."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._gangs: dict[GangKey, WarmGang] = {}
        self._gone: list[WarmGang] = []  # given up or begun, until their supervisors know
        shutil.rmtree(folder, ignore_errors=True)  # ends what an earlier service left

    def waiting(self) -> list[LaunchGang]:
        """Return the gangs that wait."""
        return [each.instruction for each in self._gangs.values()]

    def can_prepare(self, gang: LaunchGang) -> bool:
        """Return whether the gang is new here, its program can be started early, and there is memory for it."""
        ranks = sum(len(each.worker_ids) for each in (gang, *self.waiting()))
        is_new = (gang.job_id, gang.generation) not in self._gangs
        return is_new and is_script(gang) and free_memory_bytes() >= ranks * self._memory_bytes

    def prepare(
        self,
        gang: LaunchGang,
        home: Path,
        launch: Mapping[str, Any],
        environment: Mapping[str, str],
        until_boottime_s: float,
    ) -> None:
        """Start the programs of the gang, whose directory will be `home`. Raises OSError."""
        self.drop_job(gang.job_id)
        remove_gang_folder(home)
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_gang_folder(home)  # the sandbox of its programs shows it
        if os.geteuid() == 0:
            give_gang_folder(home, uid_of(launch))
        folder = self._folder / secrets.token_hex(8)
        folder.mkdir(mode=0o700, parents=True)
        warm = {"service_pid": os.getpid(), "until_boottime_s": until_boottime_s, "launch": launch}
        machine.write_json(str(folder / WAITING), warm)
        pid = spawn((*SUPERVISE, str(home), str(folder)), environment, folder / "supervisor.err")
        self._gangs[gang.job_id, gang.generation] = WarmGang(instruction=gang, folder=folder, home=home, pid=pid)

    def has(self, key: GangKey) -> bool:
        """Return whether programs of this gang wait, in the folder that was made for it."""
        return key in self._gangs

    def take(self, gang: LaunchGang) -> WarmGang | None:
        """Return the gang that waits for this launch; None if there is none, or it was started for another program."""
        warm = self._gangs.pop((gang.job_id, gang.generation), None)
        self.drop_job(gang.job_id)
        if warm is None:
            return None
        self._gone.append(warm)
        if _as_prepared(gang) == _as_prepared(warm.instruction):
            return warm
        warm.give_up()
        return None

    def drop_job(self, job_id: str) -> None:
        """Give up what was prepared for the job."""
        for key in [key for key in self._gangs if key[0] == job_id]:
            self._give_up(key)

    def look(self) -> None:
        """Remove what is left of gangs that gave up by themselves, or have begun."""
        for key in [key for key, each in self._gangs.items() if machine.start_time(each.pid) is None]:
            self._give_up(key)
        self._gone = [each for each in self._gone if not _is_over(each)]

    def close(self) -> None:
        """Give up all."""
        for key in list(self._gangs):
            self._give_up(key)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _give_up(self, key: GangKey) -> None:
        gang = self._gangs.pop(key)
        gang.give_up()
        if not (gang.home / "gang.json").exists():
            remove_gang_folder(gang.home)
        self._gone.append(gang)


def is_script(gang: LaunchGang) -> bool:
    """Return whether the program is a script of Python, outside an image: all that can be started early."""
    is_python = INTERPRETER.fullmatch(os.path.basename(gang.argv[0])) is not None
    return is_python and not gang.image and len(gang.argv) > 1 and not gang.argv[1].startswith("-")


def free_memory_bytes() -> int:
    """Return the memory that programs can get without swapping, as the kernel estimates it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024


def _as_prepared(gang: LaunchGang) -> LaunchGang:
    """Return the launch without what the ranks learn only when their lease begins."""
    return replace(
        gang,
        resource="",
        lease_expires_at_s=0.0,
        start_step=0,
        total_steps=None,
        checkpoint=None,
        job_token="",
        shares_with=None,
        time_to_loss_s=0.0,
    )


def _is_over(gang: WarmGang) -> bool:
    """Return whether the supervisor has begun the gang, and so removed the folder, or has ended."""
    if gang.folder.exists() and machine.start_time(gang.pid) is None:
        with suppress(ChildProcessError):
            os.waitpid(gang.pid, os.WNOHANG)
        shutil.rmtree(gang.folder, ignore_errors=True)
    return not gang.folder.exists()
