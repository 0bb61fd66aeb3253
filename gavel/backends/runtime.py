"""What every job has of ours: the folder with the package `gavel_runtime`, and an interpreter if it brings none."""

import compileall
import hashlib
import importlib.util
import os
import shutil
import sys
import threading
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from gavel.errors import BackendUnavailable

PACKAGE = "gavel_runtime"


def runtime_dir(state_dir: Path) -> Path:
    """Return the folder, made below `state_dir`. Raises BackendUnavailable without an installed runtime, OSError.

    It is a copy, named by its content: an upgrade of the service changes nothing for the gangs that run, and a job
    never sees the service's own packages or checkout.
    """
    files = _files()
    digest = hashlib.sha256(b"".join(name.encode() + content for name, content in files.items())).hexdigest()[:12]
    folder = state_dir / "runtime" / digest
    if not folder.is_dir():
        _write(folder, files)
    _let_all_read(folder)
    return folder


class _Bare(venv.EnvBuilder):
    """An environment without pip and without what activates it."""

    def __init__(self) -> None:
        super().__init__(symlinks=True)

    def setup_scripts(self, context: object) -> None:
        """Write none: they would name the folder in which they were made."""


def bare_python(state_dir: Path) -> Path:
    """Return the interpreter of a job that brings none, made below `state_dir`. Raises OSError.

    It is the service's, in a virtual environment with nothing but the standard library: a job sees no package of the
    service, whose versions change with each upgrade, and none of the system.
    """
    version = f"{os.path.realpath(sys.executable)} {sys.version}"
    folder = state_dir / "interpreters" / hashlib.sha256(version.encode()).hexdigest()[:12]
    if not (folder / "bin" / "python").exists():
        _make(folder, lambda temporary: _Bare().create(temporary))
    _let_all_read(folder)
    return folder / "bin" / "python"


def _files() -> dict[str, bytes]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise BackendUnavailable(f"the package {PACKAGE} is not installed; install gavel again")
    package = Path(next(iter(spec.submodule_search_locations)))
    return {path.name: path.read_bytes() for path in sorted(package.iterdir()) if path.is_file()}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the package into a new folder."""

    def write(temporary: Path) -> None:
        (temporary / PACKAGE).mkdir(parents=True)
        for name, content in files.items():
            (temporary / PACKAGE / name).write_bytes(content)
        compileall.compile_dir(temporary, quiet=2)  # a job cannot store what Python makes of it

    _make(folder, write)


def _let_all_read(folder: Path) -> None:
    """Let users of jobs read the folder, whatever the umask of the service was: nothing in it is secret."""
    if folder.stat().st_mode & 0o005 != 0o005:
        for path in folder.rglob("*"):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        folder.parent.chmod(0o711)
        folder.chmod(0o755)


def _make(folder: Path, write: Callable[[Path], object]) -> None:
    """Make a new folder, whole or not at all, also if several processes do it at once."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        write(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process made the same
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
