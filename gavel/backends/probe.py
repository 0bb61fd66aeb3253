"""Measures whether the accelerator types of this machine differ in speed; ratios are never assumed."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from gavel.backends import kernels
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.launch import base_environment
from gavel.errors import BackendUnavailable
from gavel.types import AcceleratorType

KERNEL_S = 0.5
ANSWER_LIMIT_S = 30.0
DIFFERENCE = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Runs per second of each kernel by one worker of each type, its core as busy as it gets; `text` is for people.

    `differs`: on some kernel the fastest type is over 10 % faster than the slowest.
    """

    steps_per_s: Mapping[AcceleratorType, Mapping[str, float]]
    differs: bool
    text: str


def probe(accelerators: Sequence[LocalAccelerator], *, seconds: float = KERNEL_S) -> Probe:
    """Run each kernel for so many seconds on every worker of one core of each CPU type, all at once.

    Takes one or two seconds beyond two times `seconds`. GPUs are skipped: numpy does not use them. Raises
    BackendUnavailable.
    """
    chosen = _one_core_of_each(accelerators)
    measured: dict[AcceleratorType, dict[str, float]] = {}
    for accelerator, rates in zip(chosen, _run_together(chosen, seconds), strict=True):
        sofar = measured.setdefault(accelerator.worker.accelerator_type, rates)
        sofar.update({name: min(sofar[name], value) for name, value in rates.items()})
    ratios = _ratios(measured)
    differs = any(ratio > DIFFERENCE for ratio in ratios.values())
    return Probe(steps_per_s=measured, differs=differs, text=_text(measured, ratios, differs))


def _one_core_of_each(accelerators: Sequence[LocalAccelerator]) -> list[LocalAccelerator]:
    cpus = [each for each in accelerators if not each.is_gpu]
    first = {each.worker.accelerator_type: each.cpus for each in reversed(cpus)}
    return [each for each in cpus if each.cpus == first[each.worker.accelerator_type]]


def _run_together(accelerators: Sequence[LocalAccelerator], seconds: float) -> list[dict[str, float]]:
    """Return what each worker measured. They start together after loading, so that each has busy neighbours."""
    with ExitStack() as stack:
        running = [stack.enter_context(_start(each, seconds)) for each in accelerators]
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [_result(each, process) for each, process in zip(accelerators, running, strict=True)]


def _result(accelerator: LocalAccelerator, process: "subprocess.Popen[str]") -> dict[str, float]:
    try:
        output, _ = process.communicate(timeout=ANSWER_LIMIT_S)
    except subprocess.TimeoutExpired as problem:
        process.kill()
        raise BackendUnavailable(f"numpy hangs on {accelerator.worker.id}") from problem
    if process.returncode != 0:
        raise BackendUnavailable(f"numpy does not run on {accelerator.worker.id}: exit code {process.returncode}")
    rates: dict[str, float] = json.loads(output)
    return rates


def _start(accelerator: LocalAccelerator, seconds: float) -> "subprocess.Popen[str]":
    cpus = ",".join(str(cpu) for cpu in accelerator.cpus)
    argv = [sys.executable, "-P", "-s", "-E", kernels.__file__, cpus, str(seconds)]
    env = {**base_environment(), **accelerator.env}
    return subprocess.Popen(argv, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ratios(measured: Mapping[AcceleratorType, Mapping[str, float]]) -> dict[str, float]:
    """Return the fastest type's rate over the slowest's, by kernel."""
    names = next(iter(measured.values()), {})
    rates = {name: [each[name] for each in measured.values()] for name in names}
    return {name: max(values) / min(values) for name, values in rates.items()}


def _text(measured: Mapping[AcceleratorType, Mapping[str, float]], ratios: Mapping[str, float], differs: bool) -> str:
    if not measured:
        return "no CPU accelerator to measure"
    width = max(len(name) for name in (*measured, "fastest / slowest"))
    lines = [f"{'runs per second':{width}}" + "".join(f"{name:>14}" for name in ratios)]
    lines += [
        f"{kind:{width}}" + "".join(f"{rates[name]:14,.0f}" for name in ratios) for kind, rates in measured.items()
    ]
    lines.append(f"{'fastest / slowest':{width}}" + "".join(f"{ratio:13.1f}x" for ratio in ratios.values()))
    if len(measured) > 1 and not differs:
        lines.append("These types hardly differ on this machine: do not expect gains from choosing among them.")
    return "\n".join(lines)
