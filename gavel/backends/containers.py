"""Runs processes of a gang in the job's image: with Podman, else with Apptainer (apptainer.py).

Standard library only: a part of the supervisor.

`podman run` is the process that the supervisor starts. It ends with the exit code of the program, but with 0 if it gets
a signal while it starts: so signals go to the programs themselves.
The container's own processes become descendants of the supervisor, so that its kill reaches them, too.
"""

import contextlib
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.backends.apptainer import PROGRAMS, exec_command, handed_over, is_apptainer
from gavel.backends.machine import descendants, stat_fields
from gavel.backends.unix_users import uid_of

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REMOVE_LIMIT_S = 30.0
LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 65_536), "nproc": (resource.RLIMIT_NPROC, 32_768)}
OWN_TO_PODMAN = ("PATH", "HOME")  # and LD_*: they would change podman itself, so their values stand in its command line


def image_command(wanted: Sequence[str]) -> list[str]:
    """Return the command that runs images on this node: the one of the settings, else Apptainer if it is there."""
    others = () if _is_here(wanted[0]) else (name for name in PROGRAMS if _is_here(name))
    return next(([name] for name in others), list(wanted))


def _is_here(program: str) -> bool:
    return shutil.which(program, path=SEARCH) is not None


def missing_command(launch: Mapping[str, Any]) -> str:
    """Return why no image can run here: the program for it is missing; "" if it is here."""
    program = image_command(launch["image"]["command"])[0]
    if is_apptainer([program]) and uid_of(launch):
        return f"{program} runs no image as a Unix user of the job's own (job_users); install Podman on its node"
    return "" if _is_here(program) else f"{program} is not on its node; install it there, or leave the image out"


def in_container(launch: Mapping[str, Any], name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a process (its `argv` and `env`) as one that runs in the job's image.

    Folders have the same paths inside. Variables are handed over by name, so that no value is in a command line.
    """
    image = launch["image"]
    env, argv = spec["env"], spec.get("argv", launch["argv"])
    if is_apptainer(command := image_command(image["command"])):
        return {
            **spec,
            "argv": exec_command(command, launch, env, argv),
            "env": {**handed_over(env), "PATH": SEARCH, "HOME": image["root"]},
        }
    stated = {each: value for each, value in env.items() if each in OWN_TO_PODMAN or each.startswith("LD_")}
    named = {each: value for each, value in env.items() if each not in stated}
    words = ["--rm", "--replace", "--name", f"gavel-{launch['job_id']}-{launch['generation']}-{name}"]
    words += ["--label", f"gavel.job={_label(launch)}", "--log-driver", "none", "--workdir", launch["cwd"]]
    words += [word for each in named for word in ("--env", each)]
    words += [word for each, value in stated.items() for word in ("--env", f"{each}={value}")]
    if user := spec.get("runs_as"):
        words += ["--user", f"{user['uid']}:{user['uid']}", "--security-opt", "no-new-privileges"]
        words += [word for group in user["groups"] for word in ("--group-add", str(group))]
    for limit, (number, most) in LIMITS.items():  # Podman's own may be above what this process may give
        hard = resource.getrlimit(number)[1]
        words += ["--ulimit", f"{limit}={most if hard == resource.RLIM_INFINITY else min(hard, most)}"]
    for folder, access in image["folders"].items():
        words += ["--volume", f"{folder}:{folder}:{access}"]
    whole = [*command, "run", *words, *image["options"], "--entrypoint", "", image["name"], *argv]
    return {**spec, "argv": whole, "env": {**named, "PATH": SEARCH}, "runs_as": None}  # Podman itself needs root


def programs(launch: Mapping[str, Any]) -> list[int]:
    """Return the process of each container that signals go to.

    With Podman it is the first one in it, the child of a monitor (conmon) below this process; with Apptainer ours.
    """
    if is_apptainer(image_command(launch["image"]["command"])):
        return [pid for pid in descendants(os.getpid()) if _parent(pid) == os.getpid()]
    pids = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it ended while we looked
            parent = Path(f"/proc/{stat_fields(pid)[1]}/comm").read_bytes().strip()
            pids += [pid] * (parent == b"conmon")
    return pids


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(stat_fields(pid)[1])
    return 0


def remove_containers(launch: Mapping[str, Any]) -> None:
    """Remove what is left of the job's containers, by force: those of a gang that was killed, too."""
    import subprocess

    wanted = image_command(launch["image"]["command"])
    if is_apptainer(wanted):
        return  # its containers are the gang's processes, and nothing else
    command = [*wanted, "rm", "--force", "--time", "0"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [*command, "--filter", f"label=gavel.job={_label(launch)}"],
            env={"PATH": SEARCH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=REMOVE_LIMIT_S,
            check=False,
        )


def _label(launch: Mapping[str, Any]) -> str:
    """Return what marks the job's containers of this node: several nodes may be on one machine."""
    node = launch["image"].get("node", "")
    return f"gavel-{launch['job_id']}" + (f"@{node}" if node else "")
