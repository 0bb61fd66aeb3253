"""The inputs of a gang: the environment of each rank, and launch.json (docs/gang-protocol.md)."""

import importlib.util
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.backends.accelerators import LocalAccelerator
from gavel.ports import LaunchGang

RESERVED_PREFIXES = ("GAVEL_", "LD_")
FREE_NAMES = ("GAVEL_GANG_TIMEOUT_S", "GAVEL_ARRAY_INDEX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The paths of a job's files."""

    gang: Path
    work: Path
    checkpoints: Path
    log: Path

    def make(self) -> None:
        """Make every folder, open to this user only."""
        for folder in (self.gang, self.work, self.checkpoints, self.log.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def is_reserved(name: str) -> bool:
    """Return True for a variable that a job may not set."""
    return name.startswith(RESERVED_PREFIXES) and name not in FREE_NAMES


def base_environment() -> dict[str, str]:
    """Return the environment of every process of ours, without the service's own, which may hold secrets."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    package = importlib.util.find_spec("workloads")
    if package is not None and package.submodule_search_locations:
        environment["PYTHONPATH"] = os.path.dirname(next(iter(package.submodule_search_locations)))
    return environment


def launch_json(
    gang: LaunchGang,
    places: Places,
    accelerators: Mapping[str, LocalAccelerator],
    *,
    base: Mapping[str, str],
    lease_expires_boottime_s: float,
    lease_grace_s: float,
    log_bytes: int,
) -> dict[str, Any]:
    """Return the content of launch.json: rank i runs on `gang.worker_ids[i]`."""
    gang_key = secrets.token_hex(16)
    checkpoint = "" if gang.checkpoint is None else str(places.checkpoints / gang.checkpoint)

    def rank(index: int) -> dict[str, Any]:
        accelerator = accelerators[gang.worker_ids[index]]
        own = {
            "GAVEL_JOB_ID": gang.job_id,
            "GAVEL_GENERATION": str(gang.generation),
            "GAVEL_RANK": str(index),
            "GAVEL_WORLD_SIZE": str(len(gang.worker_ids)),
            "GAVEL_GANG_DIR": str(places.gang),
            "GAVEL_CHECKPOINT_DIR": str(places.checkpoints),
            "GAVEL_CHECKPOINT": checkpoint,
            "GAVEL_START_STEP": str(gang.start_step),
            "GAVEL_TOTAL_STEPS": str(gang.total_steps),
            "GAVEL_LEASE_EXPIRES_BOOTTIME_S": repr(lease_expires_boottime_s),
            "GAVEL_GANG_KEY": gang_key,
            "GAVEL_ACCELERATOR_TYPE": gang.accelerator_type,
            "GAVEL_WORKER": accelerator.worker.id,
            "GAVEL_NODE": accelerator.worker.node,
        }
        if gang.job_token:
            own["GAVEL_JOB_TOKEN"] = gang.job_token
        theirs = {name: value for name, value in gang.env.items() if not is_reserved(name)}
        env = {**theirs, **base, "HOME": str(places.work), **accelerator.env, **own}
        return {"worker": accelerator.worker.id, "cpus": list(accelerator.cpus), "env": env}

    return {
        "job_id": gang.job_id,
        "generation": gang.generation,
        "user": gang.user,
        "argv": list(gang.argv),
        "cwd": str(places.work),
        "ranks": [rank(index) for index in range(len(gang.worker_ids))],
        "lease_expires_boottime_s": lease_expires_boottime_s,
        "lease_grace_s": lease_grace_s,
        "start_step": gang.start_step,
        "total_steps": gang.total_steps,
        "checkpoint": checkpoint or None,
        "log_path": str(places.log),
        "log_bytes": log_bytes,
    }
