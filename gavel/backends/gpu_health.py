"""Which GPUs of this machine cannot be trusted now, as their vendors' programs say: they are not used until it ends."""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gavel.backends import amd, foreign_processes
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.background_look import BackgroundLook
from gavel.backends.gpus import Ask, lost, memory_errors
from gavel.types import Cluster, WorkerId

LOOK_EVERY_S = 10.0
ANSWER_LIMIT_S = 30.0
SILENT_S = 60.0
FIELDS = (
    "uuid",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.hw_thermal_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown",
    "gpu_recovery_action",  # last: drivers before release 570 do not know it
)
NO_ACTION = ("", "None", "[N/A]", "N/A")


class GpuHealth:
    """Looks every ten seconds at the GPUs among these accelerators; without any it never looks."""

    def __init__(
        self,
        accelerators: Iterable[LocalAccelerator],
        run: Callable[[], str] | None = None,
        foreign: Callable[[], Mapping[str, str]] = foreign_processes.now,
        ask: Ask | None = None,
    ) -> None:
        gpus = [each for each in accelerators if each.is_gpu]
        self._device_of = {each.worker.id: each.device for each in gpus}
        self._amd = {each.device for each in gpus if each.is_amd}
        self._nvidia = {each.device for each in gpus} - self._amd
        self._run, self._foreign, self._ask = run or _run, foreign, ask or _ask
        self._look = BackgroundLook(self.now, dict[WorkerId, str](), every_s=LOOK_EVERY_S, silent_s=SILENT_S)

    def problems(self) -> Mapping[WorkerId, str]:
        """Return why each worker cannot be used now, and what to do; nothing of those that can."""
        if not self._device_of:
            return {}
        problems = self._look.newest()
        if self._look.is_silent:
            return dict.fromkeys(self._device_of, f"{self._programs} does not answer: look at the driver, or reboot")
        return problems

    def now(self) -> dict[WorkerId, str]:
        """Return the same after looking now, which may take half a minute."""
        if not self._device_of:
            return {}
        problems = amd.problems(self._amd, self._ask, foreign_processes.is_ours)
        if self._nvidia:
            problems |= {**self._foreign(), **_problems(self._run, self._nvidia)}
        return {worker: problems[device] for worker, device in self._device_of.items() if device in problems}

    @property
    def _programs(self) -> str:
        return " or ".join([*["nvidia-smi"] * bool(self._nvidia), *["amd-smi"] * bool(self._amd)])


def usable(cluster: Cluster, problems: Mapping[WorkerId, str]) -> Cluster:
    """Return the cluster without the workers that have a problem; their nodes say which."""
    if not problems:
        return cluster
    bad = [worker for worker in cluster.workers if worker.id in problems]
    nodes = tuple(
        replace(node, problem="; ".join(f"{each.id}: {problems[each.id]}" for each in bad if each.node == node.name))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes, workers=tuple(each for each in cluster.workers if each.id not in problems))


def without_workers(cluster: Cluster, problem: str) -> Cluster:
    """Return the cluster without any worker if there is a problem, which its nodes then say."""
    if not problem:
        return cluster
    return replace(cluster, nodes=tuple(replace(node, problem=problem) for node in cluster.nodes), workers=())


def problems_of(printed: str, devices: Iterable[str]) -> dict[str, str]:
    """Return the problem of each device (a UUID) that has one, of the answer to a query of `FIELDS`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines()]
    row_of = {row[0]: [*row[1:], *("",) * len(FIELDS)][: len(FIELDS) - 1] for row in rows}
    problems = {device: _problem(row_of.get(device)) for device in devices}
    return {device: problem for device, problem in problems.items() if problem}


def _problem(row: Sequence[str] | None) -> str:
    if row is None:
        return lost("nvidia-smi")
    errors, heat, power, action = row
    if errors.isdigit() and int(errors):
        return memory_errors(int(errors))
    if action not in NO_ACTION:
        return (
            f"its driver asks for `{action[:40]}` after an error of the GPU: the kernel's log names it (`NVRM: Xid`);"
            " it is used again when that is done"
        )
    if heat == "Active":
        return "it is slowed down by heat: look at its cooling; it is used again when it has cooled down"
    if power == "Active":
        return "it is slowed down by its power supply: look at that; it is used again when it runs at full speed"
    return ""


def _problems(run: Callable[[], str], devices: Iterable[str]) -> dict[str, str]:
    try:
        return problems_of(run(), devices)
    except (OSError, subprocess.SubprocessError) as problem:
        return dict.fromkeys(devices, f"nvidia-smi does not answer: {problem}")


def _run() -> str:
    """Return what nvidia-smi prints of each GPU; of a driver that knows other fields only which GPUs there are.

    Its exit code says only that something is wrong with one of them. Raises OSError, SubprocessError.
    """
    program, printed = shutil.which("nvidia-smi") or "nvidia-smi", ""
    for fields in (FIELDS, FIELDS[:-1], FIELDS[:1]):
        query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        done = subprocess.run(
            query, capture_output=True, text=True, check=False, timeout=ANSWER_LIMIT_S, stdin=subprocess.DEVNULL
        )
        printed = done.stdout
        if any(line.startswith("GPU-") for line in printed.splitlines()):
            return printed
    raise OSError(printed.strip()[-200:] or "it prints nothing")


def _ask(argv: Sequence[str]) -> str:
    """Return what a program prints. Raises OSError, SubprocessError."""
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=ANSWER_LIMIT_S, stdin=subprocess.DEVNULL
    ).stdout
