"""The folder on the path of every job: it has the package `gavel_runtime`, and nothing else of ours."""

import compileall
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
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
    return folder


def _files() -> dict[str, bytes]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise BackendUnavailable(f"the package {PACKAGE} is not installed; install gavel again")
    package = Path(next(iter(spec.submodule_search_locations)))
    return {path.name: path.read_bytes() for path in sorted(package.iterdir()) if path.is_file()}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the package into a new folder, whole or not at all, also if several processes do it at once."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    (temporary / PACKAGE).mkdir(parents=True)
    try:
        for name, content in files.items():
            (temporary / PACKAGE / name).write_bytes(content)
        compileall.compile_dir(temporary, quiet=2)  # a job cannot store what Python makes of it
        with suppress(FileExistsError):  # another process wrote the same
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
