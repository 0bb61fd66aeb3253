"""Mutation testing of some files: changes them in small ways, one at a time, and lists what no test notices.

    python -m scripts.mutation gavel/store/leadership_rules.py -- tests/store/test_leadership.py

mutmut works on a copy of the tree in `mutants/`, in a folder that is deleted afterwards. The exit code is 1 if a change
survives that docs/mutants.md does not explain.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXPLAINED = ROOT / "docs" / "mutants.md"
ROOMS = ("gavel", "api", "workloads", "runtime")
KILLED = ("killed", "timeout", "caught by type check")


def main(arguments: list[str]) -> int:
    """Return 0 if every mutant of the files is killed by the tests, or explained."""
    at = arguments.index("--")
    files, tests = arguments[:at], arguments[at + 1 :]
    with tempfile.TemporaryDirectory(prefix="gavel-mutation-") as name:
        folder = Path(name)
        copy_tree(folder)
        configure(folder, files, tests)
        mutmut("run", "--max-children", "2", within=folder)
        states = states_in(mutmut("results", "--all", "true", within=folder))
        return report(states, lambda mutant: mutmut("show", mutant, within=folder))


def mutmut(*arguments: str, within: Path) -> str:
    """Return what mutmut prints. Raises CalledProcessError, after printing it, when it fails."""
    environment = os.environ | {"CI": "true", "PYTHONPATH": f"{within}:{within / 'runtime'}"}
    ran = subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=within,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        print(ran.stdout[-4000:], ran.stderr[-4000:], file=sys.stderr)
    ran.check_returncode()
    return ran.stdout


def copy_tree(folder: Path) -> None:
    """Copy what git tracks."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def configure(folder: Path, files: list[str], tests: list[str]) -> None:
    """Tell mutmut which files to change, and by which tests."""
    listed = {"source_paths": list(ROOMS), "only_mutate": files, "pytest_add_cli_args_test_selection": tests}
    listed |= {"also_copy": ["scripts", "benchmarks", "examples", "docs", "README.md"]}
    listed |= {"pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist"]}
    section = "\n".join(f"{key} = {value!r}" for key, value in listed.items())
    with (folder / "pyproject.toml").open("a") as file:
        file.write(f"\n[tool.mutmut]\n{section}\n")


def states_in(results: str) -> dict[str, str]:
    """Return what became of each mutant."""
    return dict(line.strip().rsplit(": ", 1) for line in results.splitlines() if ": " in line)


def report(states: dict[str, str], diff_of: Callable[[str], str]) -> int:
    """Print the share that was killed, and each change that survived; return 1 if one of those is not explained."""
    survivors = {name: diff_of(name) for name, state in sorted(states.items()) if state not in KILLED}
    explained = EXPLAINED.read_text() if EXPLAINED.exists() else ""
    unexplained = [name for name in survivors if f"`{name}`" not in explained]
    for name, diff in survivors.items():
        print(f"{name}: {states[name]}{'' if name in unexplained else ', explained'}\n{diff}")
    killed = len(states) - len(survivors)
    print(f"{len(states)} mutants, {killed} killed, {len(survivors)} survived, {len(unexplained)} without explanation")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
