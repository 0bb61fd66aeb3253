"""`#SBATCH` lines of a script as options of `gavel job submit`, as far as they have a meaning here.

Slurm counts nodes, tasks and GPUs; a job here is a gang of so many accelerators. Options of Slurm's that say where its
own queue puts a job, or for how long, are left out, and named.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from gavel.cli.connection import fail

LINE = "#SBATCH"
LINES_READ = 200
LONG = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
COUNTS = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task")
GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gres")
MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
MAIL = {"END": "end", "FAIL": "failure", "ALL": "end,failure"}
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def options_of_sbatch(program: str) -> tuple[list[str], list[str]]:
    """Return the options for this script, and the names of Slurm's options that are left out. End at a bad value."""
    path = Path(program)
    given = dict(_lines(path)) if path.is_file() else {}
    if not given:
        return [], []
    try:
        gang, types = _gang(given)
        options = [f"--scale-factor={gang}"] if gang else []
        options += [f"--accelerator-types={types}"] if types else []
        options += [*_cores(given, gang or 1), *_memory(given, gang or 1), *_plain(given)]
    except ValueError as problem:
        fail(f"{program}: {LINE} {problem}")
    return options, sorted(f"--{name}" for name in given if not _has_meaning(name, given))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and value of each option; a later line replaces an earlier one, as in Slurm."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in islice(file, LINES_READ):
            if line.strip() and not line.startswith("#"):
                return
            if line.startswith(f"{LINE} "):
                yield from _named(shlex.split(line.removeprefix(LINE), comments=True))


def _named(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    rest = [*words]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, value = LONG.get(word[1:2], word[1:2]), word[2:].removeprefix("=")
        if not equals and not value and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        yield name, value


def _gang(given: Mapping[str, str]) -> tuple[int, str]:
    """Return how many accelerators there are over all nodes, 0 if that is not stated, and their type."""
    nodes = _count(given, "nodes")
    tasks = _count(given, "ntasks") if "ntasks" in given else nodes * _count(given, "ntasks-per-node")
    times = {"gpus": 1, "gpus-per-node": nodes, "gpus-per-task": tasks, "gres": nodes}
    for name in GPUS:
        kind, count = _gpus(name, given.get(name, ""))
        if count:
            return count * times[name], kind
    return (tasks if {"ntasks", "ntasks-per-node"} & given.keys() else 0), ""


def _gpus(name: str, value: str) -> tuple[str, int]:
    """Return type and number in `TYPE:2` or `2`, of a --gres in `gpu:TYPE:2`; 0 if it names no GPU."""
    parts = value.split(":")
    if name == "gres":
        if parts[0] != "gpu":
            return "", 0
        parts = parts[1:] or ["1"]
    if not parts[-1]:
        return "", 0
    if not parts[-1].isdigit():
        return parts[-1].lower(), 1
    return (parts[0].lower() if len(parts) > 1 else ""), int(parts[-1])


def _cores(given: Mapping[str, str], gang: int) -> list[str]:
    """Return the cores for each worker: those of all tasks, shared out."""
    if "cpus-per-task" not in given:
        return []
    tasks = _count(given, "ntasks") if "ntasks" in given else _count(given, "nodes") * _count(given, "ntasks-per-node")
    return [f"--cpus={max(_count(given, 'cpus-per-task') * tasks // gang, 1)}"]


def _memory(given: Mapping[str, str], gang: int) -> list[str]:
    """Return the memory for each worker: --mem is a node's, shared out."""
    if "mem-per-gpu" in given:
        return [f"--memory={_bytes(given, 'mem-per-gpu')}"]
    if "mem-per-cpu" in given:
        cores = next((int(each.partition("=")[2]) for each in _cores(given, gang)), 1)
        return [f"--memory={_bytes(given, 'mem-per-cpu') * cores}"]
    if given.get("mem") not in (None, "0"):
        return [f"--memory={_bytes(given, 'mem') * _count(given, 'nodes') // gang}"]
    return []


def _plain(given: Mapping[str, str]) -> list[str]:
    """Return the options that have the same meaning here."""
    options = [f"--name={given['job-name']}"] if given.get("job-name") else []
    options += [f"--workdir={given['chdir']}"] if given.get("chdir") else []
    options += [f"--node-label={each}=true" for each in _features(given)]
    notified = [MAIL[each] for each in given.get("mail-type", "").upper().split(",") if each in MAIL]
    return options + ([f"--notify={','.join(dict.fromkeys(','.join(notified).split(',')))}"] if notified else [])


def _features(given: Mapping[str, str]) -> list[str]:
    """Return the features that all nodes must have; none where Slurm may choose between several."""
    constraint = given.get("constraint", "")
    return constraint.lower().split("&") if re.fullmatch(r"[\w-]+(&[\w-]+)*", constraint) else []


def _has_meaning(name: str, given: Mapping[str, str]) -> bool:
    if name == "gres":
        return _gpus(name, given[name])[1] > 0
    if name == "constraint":
        return bool(_features(given))
    if name == "mail-type":
        return any(each in MAIL for each in given[name].upper().split(","))
    return name in (*COUNTS, *GPUS, *MEMORY, "job-name", "chdir")


def _count(given: Mapping[str, str], name: str) -> int:
    text = given.get(name, "1")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise ValueError(f"--{name}={text}: a gang has one size here; write a number")
    return int(text)


def _bytes(given: Mapping[str, str], name: str) -> int:
    """Return the bytes of Slurm's 16G; without a unit they are megabytes."""
    match = re.fullmatch(r"([0-9]{1,9})([KMGT]?)B?", given[name].upper())
    if match is None:
        raise ValueError(f"--{name}={given[name]}: write a size such as 16G")
    return int(match[1]) * UNITS[match[2] or "M"]
