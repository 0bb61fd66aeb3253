"""Copies Gavel, with an interpreter, into a folder: `python -m gavel.backends.kubernetes.runtime_copy FOLDER`.

The init container of a pod runs it, so that an agent of ours runs in the image of a job, whatever Python is in there.
That image needs the same C library as ours.
"""

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "__pycache__")
CACHES = shutil.ignore_patterns("__pycache__")
PROGRAM = "gavel.backends.kubernetes.node"
LATER = ("fsspec",)  # imported where checkpoints are at a URL


def main(folder: str) -> int:
    """Copy everything; return the exit code."""
    to = Path(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (to / "bin").mkdir(parents=True, exist_ok=True)
    base = Path(sys.base_prefix)
    shutil.copy2(base / "bin" / version, to / "bin" / "python")
    shutil.copytree(
        sysconfig.get_path("stdlib"), to / "lib" / version, ignore=LEFT_OUT, dirs_exist_ok=True, symlinks=True
    )
    for library in (base / "lib").glob("libpython*.so*"):  # the interpreter looks for it beside its own folder
        shutil.copy2(library, to / "lib" / library.name)
    packages = to / "lib" / version / "site-packages"
    packages.mkdir(exist_ok=True)
    for place in _packages():
        _copy(place, packages / place.name)
    return 0


def _packages() -> Iterable[Path]:
    """Return what the agent imports or may import later, and what jobs import, wherever they are installed."""
    import gavel
    import gavel_runtime

    __import__(PROGRAM)
    loaded = {name.partition(".")[0] for name in sys.modules}
    distributions = packages_distributions()
    chosen = {Path(each.__file__ or "").parent for each in (gavel, gavel_runtime)}
    for name in _with_requirements(
        {*loaded, *LATER} & distributions.keys() - {"gavel", "gavel_runtime"}, distributions
    ):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            path = Path(spec.origin)
            chosen.add(path.parent if path.name.startswith("__init__.") else path)
    return sorted(chosen)


def _with_requirements(names: set[str], distributions: Mapping[str, Sequence[str]]) -> set[str]:
    """Return these packages with those that they need."""
    provided: dict[str, set[str]] = {}
    for package, owners in distributions.items():
        for owner in owners:
            provided.setdefault(_plain(owner), set()).add(package)
    chosen, left = set[str](), [*names]
    while left:
        name = left.pop()
        if name in chosen:
            continue
        chosen.add(name)
        for needed in (each for owner in distributions[name] for each in requires(owner) or () if "extra" not in each):
            left += provided.get(_plain(re.split(r"[^A-Za-z0-9._-]", needed)[0]), ())
    return chosen


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _copy(place: Path, to: Path) -> None:
    if place.is_dir():
        shutil.copytree(place, to, ignore=CACHES, dirs_exist_ok=True)
        bundled = place.with_name(f"{place.name}.libs")
        if bundled.is_dir():
            shutil.copytree(bundled, to.with_name(bundled.name), dirs_exist_ok=True)
    else:
        shutil.copy2(place, to)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(*sys.argv[1:]))
