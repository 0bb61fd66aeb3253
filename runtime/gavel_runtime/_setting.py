"""The environment variables of a rank at its start: docs/gang-protocol.md, "Environment of a rank"."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

GANG_TIMEOUT_S = 60.0
REPORT_EVERY_S = 0.5
TIME_TO_LOSS_S = 1000 * 3600.0  # of a gang of one rank, where nobody has seen a loss
INPUT = "GAVEL_DATA_"  # and the name of an input in capitals


class Inputs(dict[str, Path]):
    """The place of each input by its name."""

    def __missing__(self, name: str) -> Path:
        """Raise KeyError with what to do."""
        named = ", ".join(sorted(self)) or "none"
        raise KeyError(
            f"there is no input {name} (there is {named}); submit with --data {name}=PATH_OR_URL, "
            f"or set {INPUT}{name.upper()} to run by hand"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One rank's place in its gang. Without a gang directory the script runs standalone, and its lease never ends.

    `task` is the name of a task, empty in a rank. A task has the setting of the rank whose node it runs on.
    `total_steps` None: the program says how long it is. `stop_step`: the job stops before this step, as at the end of
    a lease (`gavel run` tests a script so).
    """

    job_id: str = ""
    task: str = ""
    node: str = ""
    service_url: str = ""
    job_token: str = ""
    generation: int = 0
    rank: int = 0
    world_size: int = 1
    gang_dir: Path | None = None
    checkpoint_dir: Path | None = None
    output_dir: Path | None = None
    inputs: Inputs = field(default_factory=Inputs)
    checkpoint: Path | None = None
    previous_checkpoint: Path | None = None  # the one before it, if it is kept
    start_step: int = 0
    total_steps: int | None = None
    global_batch: int | None = None  # samples of a step of an elastic job
    max_global_batch: int | None = None  # samples that an update of it may take, where noise makes that pay
    plan: str = ""  # name of the execution plan
    plan_parameters: Mapping[str, int] = field(default_factory=dict)
    lease_expires_boottime_s: float = math.inf
    gang_key: bytes = b""
    gang_timeout_s: float = GANG_TIMEOUT_S
    hub: tuple[str, int] | None = None  # address of rank 0, when ranks are on several machines
    accelerator_type: str = "standalone"
    stop_step: float = math.inf
    report_every_s: float = REPORT_EVERY_S
    time_to_loss_s: float = TIME_TO_LOSS_S


def setting_from(environment: Mapping[str, str]) -> Setting:
    """Return the setting that the environment describes. Raises KeyError naming a variable that is missing."""
    if not environment.get("GAVEL_GANG_DIR"):
        return _standalone(environment)
    _refuse_launchers(environment)
    checkpoint = environment.get("GAVEL_CHECKPOINT", "")
    return Setting(
        job_id=environment.get("GAVEL_JOB_ID", ""),
        task=environment.get("GAVEL_TASK", ""),
        node=environment.get("GAVEL_NODE", ""),
        service_url=environment.get("GAVEL_URL", ""),
        job_token=environment.get("GAVEL_JOB_TOKEN", ""),
        generation=int(environment["GAVEL_GENERATION"]),
        rank=int(environment["GAVEL_RANK"]),
        world_size=int(environment["GAVEL_WORLD_SIZE"]),
        gang_dir=Path(environment["GAVEL_GANG_DIR"]),
        checkpoint_dir=Path(environment["GAVEL_CHECKPOINT_DIR"]),
        output_dir=_path(environment.get("GAVEL_OUTPUT_DIR", "")),
        inputs=_inputs(environment),
        checkpoint=Path(checkpoint) if checkpoint else None,
        previous_checkpoint=_path(environment.get("GAVEL_PREVIOUS_CHECKPOINT", "")),
        start_step=int(environment["GAVEL_START_STEP"]),
        total_steps=_number(environment.get("GAVEL_TOTAL_STEPS", "")),
        global_batch=_number(environment.get("GAVEL_GLOBAL_BATCH", "")),
        max_global_batch=_number(environment.get("GAVEL_MAX_GLOBAL_BATCH", "")),
        plan=environment.get("GAVEL_PLAN", ""),
        plan_parameters=_plan_parameters(environment),
        lease_expires_boottime_s=float(environment["GAVEL_LEASE_EXPIRES_BOOTTIME_S"]),
        gang_key=environment.get("GAVEL_GANG_KEY", "").encode(),
        gang_timeout_s=float(environment.get("GAVEL_GANG_TIMEOUT_S", GANG_TIMEOUT_S)),
        hub=_address(environment.get("GAVEL_HUB", "")),
        accelerator_type=environment.get("GAVEL_ACCELERATOR_TYPE", ""),
        stop_step=float(environment.get("GAVEL_STOP_STEP", math.inf)),
        report_every_s=float(environment.get("GAVEL_REPORT_EVERY_S", REPORT_EVERY_S)),
        time_to_loss_s=float(environment.get("GAVEL_TIME_TO_LOSS_S", TIME_TO_LOSS_S)),
    )


def _refuse_launchers(environment: Mapping[str, str]) -> None:
    """Raise RuntimeError in a process that torchrun or its like has started below a rank: Gavel starts the ranks."""
    ranks, processes = environment["GAVEL_WORLD_SIZE"], environment.get("WORLD_SIZE", "")
    if processes and processes != ranks and not environment.get("GAVEL_TASK"):
        raise RuntimeError(
            f"WORLD_SIZE is {processes} in a gang of {ranks}: a launcher such as torchrun or accelerate has set it. "
            "Gavel starts one process for each worker itself, with RANK, WORLD_SIZE, LOCAL_RANK and MASTER_PORT: leave "
            f"the launcher out, and submit the script with --scale-factor {processes}"
        )


def _plan_parameters(environment: Mapping[str, str]) -> dict[str, int]:
    """The parameters of the execution plan: GAVEL_PLAN_TENSOR=2 is `tensor`, 2."""
    prefix = "GAVEL_PLAN_"
    named = {name.removeprefix(prefix).lower(): text for name, text in environment.items() if name.startswith(prefix)}
    return {name: int(text) for name, text in sorted(named.items())}


def _inputs(environment: Mapping[str, str]) -> Inputs:
    named = {
        name.removeprefix(INPUT).lower(): Path(path) for name, path in environment.items() if name.startswith(INPUT)
    }
    return Inputs(named)


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _number(text: str) -> int | None:
    return int(text) if text else None


def _address(text: str) -> tuple[str, int] | None:
    """Return (host, port) of `HOST:PORT`; None for an empty text."""
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host else None


def _standalone(environment: Mapping[str, str]) -> Setting:
    """Return the setting of a script run by hand; with GAVEL_CHECKPOINT_DIR it resumes from the newest checkpoint."""
    directory = environment.get("GAVEL_CHECKPOINT_DIR", "")
    outputs = Path(environment.get("GAVEL_OUTPUT_DIR", "outputs"))
    inputs = _inputs(environment)
    alone = Setting(
        output_dir=outputs,
        inputs=inputs,
        plan=environment.get("GAVEL_PLAN", ""),
        plan_parameters=_plan_parameters(environment),
    )
    if not directory:
        return alone
    step, checkpoint = _newest(Path(directory))
    return replace(alone, checkpoint_dir=Path(directory), checkpoint=checkpoint, start_step=step)


def _newest(directory: Path) -> tuple[int, Path | None]:
    """Return the step and path of the checkpoint of generation 0 with the most steps; (0, None) without one."""
    paths = directory.iterdir() if directory.is_dir() else ()
    generations = [(int(path.name[2:]), path) for path in paths if re.fullmatch(r"0-\d+", path.name)]
    return max(generations, default=(0, None))
