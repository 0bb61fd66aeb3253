"""The options of `gavel job submit`, and how their texts are read."""

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from gavel.cli import completion
from gavel.cli.connection import fail
from gavel.cli.instants import instant_if
from gavel.cli.option_texts import labels_of_nodes, pairs
from gavel.cli.program import read_env_file
from gavel.client import JobSubmit

SAME_NAME = (
    *("kind", "name", "tier", "scale_factor", "weight", "priority", "max_retries", "preemptible"),
    *("setup", "dump", "restore", "image", "mode", "global_batch", "max_global_batch", "accelerator_share"),
)
Repeated = list[str] | None
NEEDS = "What its workers need"
UNITS = {
    **{"": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4},
    **{"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
}
SIZE_HINT = "{} {}: write a size such as 512MiB or 16GiB"
Program = Annotated[
    Repeated,
    typer.Argument(
        metavar="[PROGRAM [ARGUMENT..]]", help="A .py file or any program; what follows it are its own arguments."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Training steps until the job is complete; default: as its program says (total=).",
        show_default=False,
    ),
]
File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="A job file (YAML); options go before its fields.")
]
Profile = Annotated[
    str | None, typer.Option(metavar="NAME", help="A profile of gavel.yaml, here or in a folder above this one.")
]
Workdir = Annotated[Path, typer.Option(metavar="DIR", help="Folder that the program runs in.", show_default="here")]
Snapshot = Annotated[
    bool,
    typer.Option(help="Run in a copy of what git tracks there (outside git: of all files), not in the folder itself."),
]
GitRef = Annotated[
    str | None,
    typer.Option(
        metavar="REF", help="Run the files that git has at this commit, tag or branch, in place of those there now."
    ),
]
GitUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Run what a git repository has at --git-ref (default: its HEAD), in place of files from here.",
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="Interpreter; default: of $VIRTUAL_ENV, $CONDA_PREFIX or .venv, else your python."
    ),
]
Image = Annotated[
    str | None, typer.Option(metavar="IMAGE", help="Container image to run in, with its own interpreter and packages.")
]
Secret = Annotated[
    Repeated, typer.Option(metavar="NAME", help="A secret of yours as environment variable NAME; repeatable.")
]
Setup = Annotated[
    str | None,
    typer.Option(
        metavar="LINE", help="Shell line that fills the job's virtual environment, once for each content and node."
    ),
]
Dump = Annotated[
    str | None,
    typer.Option(
        metavar="LINE",
        help="Shell line that saves the state of a program that cannot be changed to $GAVEL_SNAPSHOT_DIR.",
    ),
]
Restore = Annotated[
    str | None,
    typer.Option(metavar="LINE", help="Shell line that gives that state back, before the program starts again."),
]
Data = Annotated[
    Repeated,
    typer.Option(metavar="NAME=SOURCE", help="Input, a path or URL, that job.data has by NAME; repeatable."),
]
EnvFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Lines NAME=VALUE; --env goes before them.")]
Kind = Annotated[
    str | None,
    typer.Option(
        help="Job kind: of the catalogue, or user/name; default: the script and the arguments that change its speed.",
        autocompletion=completion.kinds,
    ),
]
KindArgs = Annotated[
    Repeated, typer.Option(metavar="NAME", help="An argument that changes the speed, too, such as crop; repeatable.")
]
Name = Annotated[str | None, typer.Option(help="A name for people.")]
SubmitTier = Annotated[
    str | None, typer.Option(help="One of your tiers; default: your first.", autocompletion=completion.tiers)
]
ScaleFactor = Annotated[int, typer.Option(help="Accelerators the gang needs at once.", rich_help_panel=NEEDS)]
Sizes = Annotated[
    str,
    typer.Option(
        metavar="N,N,..|N-M",
        help="Sizes of an elastic job, such as 1,2,4 or 1-8, in place of --scale-factor: the rounds choose.",
        rich_help_panel=NEEDS,
    ),
]
GlobalBatch = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Samples of a step of an elastic job, at every size.", rich_help_panel=NEEDS),
]
MaxGlobalBatch = Annotated[
    int | None,
    typer.Option(
        min=2,
        metavar="N",
        help="Samples that an update may grow to, where noise makes that pay (job.gain).",
        rich_help_panel=NEEDS,
    ),
]
Plan = Annotated[
    Repeated,
    typer.Option(
        metavar="NAME=N,..",
        help="An execution plan, such as tensor=2,pipeline=1: the rounds choose the fastest; repeatable.",
        rich_help_panel=NEEDS,
    ),
]
Weight = Annotated[float, typer.Option(help="Relative to your other jobs in the tier.")]
Deadline = Annotated[float | None, typer.Option(help="Seconds from now until it should be complete.")]
Env = Annotated[Repeated, typer.Option(metavar="NAME=VALUE", help="Environment; repeatable.")]
Label = Annotated[Repeated, typer.Option(metavar="KEY=VALUE", help="Label; repeatable.")]
Speed = Annotated[Repeated, typer.Option(metavar="TYPE=RATE", help="Known speed of the gang, in steps/s; repeatable.")]
Priority = Annotated[int | None, typer.Option(help="Each step doubles the weight; default: the tier's.")]
Retries = Annotated[int, typer.Option(min=0, metavar="N", help="How many times a failed program is started again.")]
MaxRetries = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="How many times a failed program is started again.")
]
NewWeight = Annotated[float | None, typer.Option(help="Relative to your other jobs in the tier.")]
NewScaleFactor = Annotated[int | None, typer.Option(help="Accelerators the gang needs at once.")]
Preemptible = Annotated[
    bool, typer.Option(help="Whether rounds may stop it and start it again later, from its last checkpoint.")
]
Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="batch; interactive: a session that is never preempted and has an end; service: replicas without end.",
    ),
]
ServiceNeeds = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="FIELD=VALUE,..",
        help="What an inference service needs: port=0 by default, readiness=/ready, replicas=2 and more, with commas.",
    ),
]
Longest = Annotated[
    str | None, typer.Option(metavar="TIME", help="The most that a session lasts, such as 2h; default: 4h at most.")
]
Idle = Annotated[
    str | None, typer.Option(metavar="TIME", help="A session ends when nobody has used it for so long, such as 30m.")
]
At = Annotated[
    str | None,
    typer.Option(metavar="INSTANT", help="Reserve its workers and start the session then, such as 2026-12-01T09:00."),
]
Share = Annotated[
    float,
    typer.Option(
        "--share", help="0.5: another session that says so, or a training, may run beside it.", show_default=False
    ),
]
Forward = Annotated[
    str | None,
    typer.Option(
        metavar="PORT[:LOCAL]",
        help="Wait until it runs, then reach this port of it here, until Ctrl-C; `terminal`: attach to its shell.",
    ),
]
Cpus = Annotated[
    int, typer.Option(min=1, metavar="N", help="CPU cores that each of its workers needs.", rich_help_panel=NEEDS)
]
Memory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Memory that each worker needs: bytes, or 512MiB, 16GiB.", rich_help_panel=NEEDS),
]
AcceleratorTypes = Annotated[
    str,
    typer.Option(
        metavar="TYPE,..",
        help="Accelerator types that it may run on, or with a leading ! may not, in quotes: 'a100,h100' or '!k80'.",
        rich_help_panel=NEEDS,
    ),
]
AcceleratorMemory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Memory that each accelerator must have, such as 40GiB.", rich_help_panel=NEEDS),
]
NodeLabel = Annotated[
    Repeated,
    typer.Option(
        metavar="KEY[=VALUE]", help="Label that its nodes must have; KEY: all the same.", rich_help_panel=NEEDS
    ),
]
Regions = Annotated[
    Repeated,
    typer.Option("--region", metavar="REGION", help="A region that it may be in; repeatable.", rich_help_panel=NEEDS),
]
DataSet = Annotated[
    str,
    typer.Option(
        metavar="SIZE@REGION", help="Its data set, such as 150GB@eu: a move copies it.", rich_help_panel=NEEDS
    ),
]
Notify = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT", help="Notify you of: end, failure, no-progress (with commas), or none. Default: as set."
    ),
]
Array = Annotated[
    Repeated,
    typer.Option(metavar="NAME=V1,V2,..", help="One job for each value, set in env and put for {NAME}; repeatable."),
]
Count = Annotated[int | None, typer.Option(min=1, metavar="N", help="Submit it so many times, as an array.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when the job has ended, with its exit code.")]
Follow = Annotated[bool, typer.Option("--follow", help="Print its log until it has ended; implies --wait.")]


def speeds(given: Repeated) -> dict[str, float]:
    """Return the steps per second that `--throughput` gives for each accelerator type."""
    try:
        return {name: float(value) for name, value in pairs("--throughput", given).items()}
    except ValueError as error:
        fail(f"--throughput: {error}; write TYPE=STEPS_PER_S, such as avx512=12.5")


def bytes_of(option: str, text: str) -> int:
    """Return the bytes of a size as people write it, such as 512MiB. End the command at a text that is none."""
    match = re.fullmatch(r"([0-9.]+) *([a-z]*)", text.strip().lower())
    try:
        return int(float(match[1]) * UNITS[match[2]]) if match else fail(SIZE_HINT.format(option, text))
    except (KeyError, ValueError):
        fail(SIZE_HINT.format(option, text))


def data_set(text: str) -> dict[str, Any]:
    """Return the fields of a data set such as 150GB@eu; "": there is none. End the command at a text that is none."""
    size, separator, region = text.partition("@")
    if not text:
        return {}
    if not separator or not region:
        fail(f"--data-set {text}: write SIZE@REGION, such as 150GB@eu")
    return {"data_region": region, "data_bytes": bytes_of("--data-set", size)}


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of a duration as people write it, such as 90, 30m or 2h. End the command at another text."""
    match = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?) *(s|m|min|h|d)?", text.strip().lower())
    if match is None:
        fail(f"{option} {text}: write a duration such as 90s, 30m or 2h")
    return float(match[1]) * {"m": 60, "min": 60, "h": 3600, "d": 86_400}.get(match[2] or "s", 1)


def seconds_if(option: str, text: str | None) -> float | None:
    """Return the seconds of a duration, None without one. End the command as `seconds_of`."""
    return None if text is None else seconds_of(option, text)


def inputs(given: Repeated) -> dict[str, str]:
    """Return the inputs that `--data` names, relative paths from here."""
    return {
        name: source if "://" in source else os.path.abspath(os.path.expanduser(source))
        for name, source in pairs("--data", given, "NAME=PATH_OR_URL").items()
    }


def service_needs(text: str | None) -> dict[str, Any] | None:
    """Return what `--service` states, such as `readiness=/ready,replicas=2`; a check is a path, or `tcp`.

    The service checks the names. End the command at a text without `=`.
    """
    if text is None:
        return None
    stated = {name: _part_of_service(name, value) for name, value in pairs("--service", _fields(text)).items()}
    return {"port": 0, **stated}


def demand_of(text: str | None) -> float | Literal["measured"] | None:
    """Return the demand that `--demand` states. End the command at anything but a number or `measured`."""
    if text is None or text == "measured":
        return cast(Literal["measured"] | None, text)
    try:
        return float(text)
    except ValueError:
        fail(f"--demand {text}: write requests per second, such as 40, or measured")


def rate_of(text: str | None) -> float | dict[str, float] | None:
    """Return the rate that `--rate` states: a number, or JSON with one for each type. End the command at others."""
    if text is None:
        return None
    try:
        rate = json.loads(text)
    except ValueError:
        rate = None
    if not isinstance(rate, int | float | dict):
        fail(f'--rate {text}: write requests per second, such as 40, or by type: {{"V100": 40, "K80": 9}}')
    return rate


def _fields(text: str) -> list[str]:
    """The texts between commas; none inside braces divides, as in `rate={"V100": 40, "K80": 9}`."""
    return [each.strip() for each in re.split(r",(?![^{]*})", text) if each.strip()]


def _part_of_service(name: str, value: str) -> Any:
    if name in ("readiness", "liveness"):
        return {"path": "" if value == "tcp" else value}
    with suppress(ValueError):  # a number or a truth value; other texts, such as rack, are as they are
        return json.loads(value)
    return value


def occasions_of(text: str | None) -> Any:
    """Return what `--notify` lists, such as `end,failure`; `none` is an empty list. The service checks the names."""
    if text is None:
        return None
    return [] if text.strip() == "none" else listed(text)


def listed(text: str) -> list[str]:
    """Return the names in a text with commas between them."""
    return [each.strip() for each in text.split(",") if each.strip()]


def sizes_stated(text: str) -> list[int] | str:
    """Return the whole numbers in a text with commas between them, or the range that it is. End the command else."""
    if re.fullmatch(r"[0-9]+-[0-9]+", text.strip()):
        return text.strip()
    if wrong := [each for each in listed(text) if not each.isdecimal()]:
        fail(f"--sizes {wrong[0]}: write numbers with commas between them, such as 1,2,4, or a range, such as 1-8")
    return [int(each) for each in listed(text)]


def stated_by(options: Mapping[str, Any]) -> JobSubmit:
    """Return the fields of a job that the options of the command state; without its program."""
    deadline, env_file = options["deadline"], options["env_file"]
    stated: Any = {
        **{name: options[name] for name in SAME_NAME},
        "total_steps": options["steps"],
        "sizes": sizes_stated(options["sizes"]),
        "plans": options["plan"] or [],
        "kind_args": options["kind_args"] or [],
        "service": service_needs(options["service"]),
        "longest_s": seconds_if("--longest", options["longest"]),
        "idle_s": seconds_if("--idle", options["idle"]),
        "reserved_at_s": instant_if("--at", options["at"]),
        "deadline_at_s": None if deadline is None else time.time() + deadline,
        "env": {**(read_env_file(env_file) if env_file else {}), **pairs("--env", options["env"])},
        "labels": pairs("--label", options["label"]),
        "throughputs": speeds(options["throughput"]),
        "after": options["after"] or [],
        "secrets": options["secret"] or [],
        "data": inputs(options["data"]),
        "cpu_cores": options["cpus"],
        "memory_bytes": bytes_of("--memory", options["memory"]),
        "accelerator_types": listed(options["accelerator_types"]),
        "accelerator_memory_bytes": bytes_of("--accelerator-memory", options["accelerator_memory"]),
        **labels_of_nodes(options["node_label"] or []),
        "regions": options["region"] or [],
        **data_set(options["data_set"]),
        "notify": occasions_of(options["notify"]),
    }
    return cast(JobSubmit, stated)
