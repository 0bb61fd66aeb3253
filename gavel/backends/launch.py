"""The inputs of a gang: the environment of each rank, and launch.json (docs/gang-protocol.md)."""

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.checkpoint_copies import copied_checkpoint
from gavel.backends.checkpoint_retention import previous_checkpoint
from gavel.backends.gang_files import TEMPORARY, give_gang_folder, job_files, make_gang_folder
from gavel.backends.given_variables import certificates_of, for_drivers, for_installers
from gavel.backends.health import serving_of
from gavel.backends.inputs import local_path
from gavel.backends.meeting import devices_of_gang, place_of_rank
from gavel.backends.runtime import bare_python
from gavel.backends.sandbox import bubblewrap, is_sandboxed
from gavel.backends.sandbox_mounts import (
    common_folders,
    data_folders,
    device_groups,
    device_nodes,
    interpreter_folders,
    named_paths,
    private_files,
)
from gavel.backends.sandbox_view import OF_ALL
from gavel.backends.unix_users import give, let_pass, open_state
from gavel.errors import NotFound
from gavel.ports import LaunchGang
from gavel.types.environment import is_of_job, reserved
from gavel.types.regions import plain_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The paths of a job's files. `runtime` is the folder with the package that jobs import.

    `outputs` is the job's output folder, None where the service could not read it.
    """

    runtime: Path
    code_store: Path
    environments: Path
    inputs: Path
    gang: Path
    work: Path
    checkpoints: Path
    log: Path
    outputs: Path | None = None
    kept: Path | None = None  # the folder of what outlives gangs, where theirs are in another one

    @property
    def state(self) -> Path:
        """Return the state folder: that of what outlives gangs."""
        return self.kept or self.gang.parents[2]

    @property
    def images(self) -> Path:
        """Return where is noted which images were pulled."""
        return self.environments.with_name("images")

    @property
    def copy(self) -> Path:
        """Return where the job's own copy of its code is."""
        return self.work / "code"

    def make(self, uid: int = 0) -> None:
        """Make every folder, open to this user only; what is the job's own belongs to `uid`. Raises OSError."""
        own = tuple(filter(None, (self.work, self.checkpoints, self.outputs)))
        for folder in (self.gang.parent, self.log.parent, *own):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_gang_folder(self.gang)
        if os.geteuid() == 0:
            apart = (self.gang.parents[3], self.gang.parents[2]) if self.kept else ()
            around = (*apart, self.gang.parents[1], self.gang.parent, *(each.parent for each in own))
            if uid:
                open_state(str(self.state))
                let_pass(map(str, around))
            give_gang_folder(self.gang, uid)
            for folder in own:
                give(str(folder), uid)


def no_secrets(user: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return no secrets: nobody has any. Raises NotFound."""
    if names:
        raise NotFound(f"there is no secret {names[0]}")
    return {}


def as_service(user: str) -> int:
    """Return 0: the jobs of the user run as the user of the service."""
    return 0


def anywhere(user: str) -> Sequence[str]:
    """Return the folder that all others are in: jobs of the user may name any."""
    return ("/",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How what jobs bring is made ready on a node.

    `setup_limit_s`: the most that a setup may take. Inputs are fetched from `data_hosts` (patterns), each within
    `data_limit_s`, and take `data_cache_bytes` together. `image_command` is Podman with its own options,
    `image_options` are those of its `run`. `secrets_of` returns the values of a user's secrets by their names, and
    raises NotFound. `isolation`: `sandbox`, `none`, or `auto`, a sandbox where this node can make one. In it every job
    sees `shown_folders` (PATH or PATH:rw), and none sees `hidden_paths`. What jobs of a user name lies in the folders
    that `job_folders` returns. Programs of its jobs run as the uid that `uid_of` returns (0: as the service); it
    raises LimitReached if there is none for them. `job_users`: the setting with the uids that there are.
    """

    setup_limit_s: float = 3600.0
    data_hosts: Sequence[str] = ("*",)
    data_limit_s: float = 21_600.0
    data_cache_bytes: int = 50_000_000_000
    image_command: Sequence[str] = (
        "podman",
        *["--log-level", "error", "--runtime", "runc", "--cgroup-manager", "cgroupfs"],
    )
    image_options: Sequence[str] = ("--network", "host")
    isolation: str = "auto"
    shown_folders: Sequence[str] = ()
    hidden_paths: Sequence[str] = ()
    job_folders: Callable[[str], Sequence[str]] = anywhere
    secrets_of: Callable[[str, Sequence[str]], Mapping[str, str]] = no_secrets
    job_users: str = ""
    uid_of: Callable[[str], int] = as_service


PREPARATION = Preparation()
OF_CATALOGUE = "python -m workloads.training."  # how programs begin that are a part of the service
SERVICE_BIN = str(Path(sys.executable).parent)


def base_environment() -> dict[str, str]:
    """Return the environment of every process of ours, without the service's own, which may hold secrets."""
    return {
        "PATH": f"{SERVICE_BIN}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }


def interpreter_of(gang: LaunchGang, places: Places) -> str:
    """Return the interpreter of a gang: the one that it names, else one that sees no package. Raises OSError.

    "": that of its image, or for a program of the catalogue, which is a part of the service, the service's own.
    """
    is_of_service = " ".join(gang.argv[:3]).startswith(OF_CATALOGUE) and not (gang.code or gang.workdir)
    brings_one = gang.python or gang.image or is_of_service
    return gang.python if brings_one else str(bare_python(places.state))


def _search_path(python: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return the PATH of a gang: its interpreter's folder comes first, and the service's is not in it."""
    others = [each for each in base["PATH"].split(":") if each != SERVICE_BIN]
    return {"PATH": ":".join([str(Path(python).parent), *others])} if python else {}


def launch_json(  # noqa: PLR0913  settings, each by its name
    gang: LaunchGang,
    places: Places,
    accelerators: Mapping[str, LocalAccelerator],
    *,
    base: Mapping[str, str],
    lease_expires_boottime_s: float,
    lease_grace_s: float,
    log_bytes: int,
    output_bytes: int = 0,
    preparation: Preparation = PREPARATION,
) -> dict[str, Any]:
    """Return the content of launch.json: rank i runs on `gang.worker_ids[i]`. Raises NotFound without a secret."""
    gang_key = secrets.token_hex(16)
    secret = dict(preparation.secrets_of(gang.user, gang.secrets))
    theirs = {name: value for name, value in gang.env.items() if is_of_job(name) or not reserved(name)}

    checkpoint = _checkpoint(gang, places)
    devices = devices_of_gang([accelerators[worker].env for worker in gang.worker_ids])
    python = interpreter_of(gang, places)
    search = _search_path(python, base)
    given = {**base, **search}
    if gang.image:
        given.pop("PATH")  # the image has its own

    def rank(index: int) -> dict[str, Any]:
        accelerator = accelerators[gang.worker_ids[index]]
        own = {
            **_of_gang(gang, places),
            "GAVEL_RANK": str(index),
            "GAVEL_LEASE_EXPIRES_BOOTTIME_S": repr(lease_expires_boottime_s),
            "GAVEL_GANG_KEY": gang_key,
            "GAVEL_WORKER": accelerator.worker.id,
            "GAVEL_NODE": accelerator.worker.node,
            **place_of_rank(
                index, len(gang.worker_ids), local_rank=index, local_world_size=len(gang.worker_ids), node_rank=0
            ),
        }
        env = {**given, "HOME": str(places.work), **accelerator.env, **devices, **theirs, **secret, **own}
        env["PYTHONPATH"] = ":".join(filter(None, (str(places.runtime), theirs.get("PYTHONPATH", ""))))
        return {"worker": accelerator.worker.id, "cpus": list(accelerator.cpus), "env": env}

    for_setup = {**base, **search, **theirs}
    launch: dict[str, Any] = {
        "job_id": gang.job_id,
        "generation": gang.generation,
        "user": gang.user,
        "argv": [_program(gang.argv[0], python), *gang.argv[1:]],
        "python": python,
        "cwd": str(places.copy) if gang.code else gang.workdir or str(places.work),
        "code": {"store": str(places.code_store), "digest": gang.code, "copy": str(places.copy)} if gang.code else None,
        "setup": _setup(gang, places, for_setup, secret, preparation.setup_limit_s) if gang.setup else None,
        "data": _data(gang, places, theirs, secret, preparation) if gang.data else None,
        "secrets": secret,
        "image": _image(gang, places, preparation) if gang.image else None,
        "ranks": _as_user(preparation.uid_of(gang.user), [rank(index) for index in range(len(gang.worker_ids))]),
        "reserve_port": True,
        "lease_expires_boottime_s": lease_expires_boottime_s,
        "lease_grace_s": lease_grace_s,
        "start_step": gang.start_step,
        "total_steps": gang.total_steps,
        "checkpoint": checkpoint and str(checkpoint),
        "serving": serving_of(gang.serving),
        "log_path": str(places.log),
        "log_bytes": log_bytes,
        "outputs": str(places.outputs or ""),
        "output_bytes": output_bytes,
        "limits": _limits(gang),
    }
    return launch | _isolation(gang, places, launch, preparation)


def _as_user(uid: int, ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranks with the Unix user that their programs become; 0: that of the supervisor."""
    groups = [device_groups(each["env"]) if uid else [] for each in ranks]
    users = [{"uid": uid, "groups": each} if uid else None for each in groups]
    return [{**rank, "runs_as": user} for rank, user in zip(ranks, users, strict=True)]


def _isolation(gang: LaunchGang, places: Places, launch: Mapping[str, Any], preparation: Preparation) -> dict[str, Any]:
    """Return what the job may have of its node, and its sandbox, if it gets one."""
    has_sandbox = not gang.image and is_sandboxed(preparation.isolation)
    return {
        "named": _named(gang),
        "lent": [launch["checkpoint"]] if launch["checkpoint"] and gang.checkpoint is None else [],
        "interpreter": _interpreter(gang),
        "job_folders": list(preparation.job_folders(gang.user)),
        "hidden": _hidden(places, preparation),
        "own": _own_folders(gang, places)
        | _own_interpreter(gang, launch["python"])
        | dict.fromkeys(data_folders(launch), "ro"),
        "sandbox": _sandbox(gang, places, launch, preparation) if has_sandbox else None,
    }


def _own_interpreter(gang: LaunchGang, python: str) -> dict[str, str]:
    """Return how the gang may use the folder of an interpreter that it did not bring."""
    return {str(Path(python).parents[1]): "ro"} if python and not gang.python else {}


def _limits(gang: LaunchGang) -> dict[str, int] | None:
    """Return what each rank may use of its node; None if it said nothing, or its image is run by Podman."""
    is_limited = (gang.memory_bytes or gang.cpu_cores) and not gang.image
    return {"memory_bytes": gang.memory_bytes, "cpu_cores": gang.cpu_cores} if is_limited else None


def _named(gang: LaunchGang) -> dict[str, str]:
    """Return how the job may use the paths that it names itself: its folder, its interpreter, its inputs."""
    inputs = {path: "ro" for source in gang.data.values() if (path := local_path(source))}
    workdir = {gang.workdir: "rw"} if gang.workdir and not gang.code else {}
    return {**inputs, **({gang.python: "ro"} if gang.python else {}), **workdir}


def _interpreter(gang: LaunchGang) -> list[str]:
    """Return the folders that the job's interpreter needs, which the job has to be allowed to name, too."""
    return [each for each in interpreter_folders(gang.python) if each not in OF_ALL] if gang.python else []


def _hidden(places: Places, preparation: Preparation) -> list[str]:
    """Return what jobs see only their own part of, or nothing: the folders of all jobs, and what the service keeps."""
    shared = [each.parent for each in (places.checkpoints, places.outputs) if each is not None]
    own = [str(path) for path in (places.state, *shared)]
    return [*own, *preparation.hidden_paths, *private_files()]


def _own_folders(gang: LaunchGang, places: Places) -> dict[str, str]:
    """Return how the gang may use the folders that the service makes for it; a part after what it is in."""
    folders = {str(places.gang): "ro", str(places.runtime): "ro", str(job_files(places.gang)): "rw"}
    own = (places.work, places.checkpoints, places.outputs)
    checkpoint = _checkpoint(gang, places)
    if checkpoint is not None and gang.checkpoint is None:
        folders[str(checkpoint)] = "ro"
    return {**folders, **{str(each): "rw" for each in own if each is not None}}


def _sandbox(gang: LaunchGang, places: Places, launch: Mapping[str, Any], preparation: Preparation) -> dict[str, Any]:
    """Return the sandbox of the gang: what it sees of its node besides its environment."""
    env = launch["ranks"][0]["env"]
    python = launch["python"]
    interpreter = interpreter_folders(python) if python else ()
    return {
        "command": bubblewrap().path,
        "tmp": str(places.gang / TEMPORARY),
        "shown": common_folders(preparation.shown_folders),
        "mentioned": sorted({*named_paths(launch["argv"], env), *interpreter}),
        "devices": device_nodes(env),
    }


def _of_gang(gang: LaunchGang, places: Places) -> dict[str, str]:
    """Return the variables that all ranks of the gang have alike."""
    previous = None if gang.checkpoint is None else previous_checkpoint(places.checkpoints, gang.checkpoint)
    token = {"GAVEL_JOB_TOKEN": gang.job_token} if gang.job_token else {}
    return token | {
        "GAVEL_JOB_ID": gang.job_id,
        "GAVEL_GENERATION": str(gang.generation),
        "GAVEL_WORLD_SIZE": str(len(gang.worker_ids)),
        "GAVEL_GANG_DIR": str(job_files(places.gang)),
        "GAVEL_CHECKPOINT_DIR": str(places.checkpoints),
        "GAVEL_CHECKPOINT": str(_checkpoint(gang, places) or ""),
        "GAVEL_PREVIOUS_CHECKPOINT": str(previous or ""),
        "GAVEL_OUTPUT_DIR": str(places.outputs or ""),
        "GAVEL_START_STEP": str(gang.start_step),
        "GAVEL_TOTAL_STEPS": "" if gang.total_steps is None else str(gang.total_steps),
        "GAVEL_ACCELERATOR_TYPE": plain_type(gang.accelerator_type),
        **({"GAVEL_TIME_TO_LOSS_S": f"{gang.time_to_loss_s:.0f}"} if gang.time_to_loss_s else {}),
    }


def _checkpoint(gang: LaunchGang, places: Places) -> Path | None:
    """Return the checkpoint that the gang goes on from: the job's own, else that of the job it began with."""
    if gang.checkpoint is not None:
        return places.checkpoints / gang.checkpoint
    return copied_checkpoint(places.checkpoints.parent, gang.from_checkpoint) if gang.from_checkpoint else None


def _setup(
    gang: LaunchGang, places: Places, env: Mapping[str, str], secret: Mapping[str, str], limit_s: float
) -> dict[str, Any]:
    """Return what makes the job's environment. Of its variables only those that installers read are given to it."""
    cache = places.environments / "cache" / gang.user
    given = {
        "PIP_CACHE_DIR": str(cache / "pip"),
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_LINK_MODE": "copy",  # a job that changes a file in place must not change the cache
        **for_installers(env),
        **secret,
        "HOME": str(places.work),
    }
    return {"text": gang.setup, "root": str(places.environments), "env": given, "limit_s": limit_s}


def _data(
    gang: LaunchGang, places: Places, env: Mapping[str, str], secret: Mapping[str, str], preparation: Preparation
) -> dict[str, Any]:
    """Return where the inputs come from, and the sandbox in which they are read: with nothing of the job."""
    given = for_drivers({**env, **secret})
    sandbox = {
        "command": bubblewrap().path,
        "shown": common_folders(preparation.shown_folders),
        "mentioned": certificates_of(given),
        "devices": [],
    }
    return {
        "sources": dict(gang.data),
        "root": str(places.inputs),
        "env": given,
        "hosts": list(preparation.data_hosts),
        "limit_s": preparation.data_limit_s,
        "cache_bytes": preparation.data_cache_bytes,
        "sandbox": sandbox if is_sandboxed(preparation.isolation) else None,
    }


def _image(gang: LaunchGang, places: Places, preparation: Preparation) -> dict[str, Any]:
    """Return how the job's image is run, with the folders that are the same inside."""
    folders = _own_folders(gang, places)
    if gang.workdir and not gang.code:
        folders[gang.workdir] = "rw"
    return {
        "name": gang.image,
        "command": list(preparation.image_command),
        "options": list(preparation.image_options),
        "root": str(places.images),
        "limit_s": preparation.setup_limit_s,
        "folders": folders,
    }


def _program(program: str, python: str) -> str:
    """Return the program to run: for `python` the job's own interpreter, whatever its PATH says."""
    return python if python and program in ("python", "python3") else program
