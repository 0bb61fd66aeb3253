"""Policies of the operator's own: the files of a folder, executed with the rights of the service."""

import importlib.util
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from gavel.errors import InvalidRequest

FilesVersion = tuple[tuple[str, int, int], ...]
"""Name, time of the last change in ns, and size in bytes of each file."""


def files_version(folder: Path) -> FilesVersion:
    """Return names, times and sizes of the folder's policy files. Raises InvalidRequest if there is no such folder."""
    if not folder.is_dir():
        raise InvalidRequest("policy_dir", f"{folder} is no folder; name the folder that holds your policy files")
    files = ((file.name, file.stat()) for file in sorted(folder.glob("*.py")))
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in files if not name.startswith("_"))


def own_policies(folder: Path, files: FilesVersion) -> tuple[tuple[Any, ...], tuple[InvalidRequest, ...]]:
    """Return POLICY of every file, and an error for each file that has none; the others can still be used."""
    policies, faults = list[Any](), list[InvalidRequest]()
    for name, _, _ in files:
        try:
            policies.append(_policy_of(folder / name))
        except InvalidRequest as fault:
            faults.append(fault)
    return tuple(policies), tuple(faults)


def _policy_of(file: Path) -> Any:
    name = f"gavel_own_policy_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # whatever a file raises, SystemExit too, its operator is to hear which and why
        raise InvalidRequest("policy_dir", f"{file} raised {type(error).__name__}: {error}") from error
    policy = getattr(module, "POLICY", None)
    if not _is_policy(policy):
        wanted = "a dataclass with texts name, formula and source, allocate(problem), and a default for each field"
        raise InvalidRequest("policy_dir", f"{file} needs POLICY, {wanted}")
    return policy


def _is_policy(policy: Any) -> bool:
    return (
        isinstance(policy, type)
        and is_dataclass(policy)
        and all(isinstance(getattr(policy, text, None), str) for text in ("name", "formula", "source"))
        and callable(getattr(policy, "allocate", None))
        and all(field.default is not MISSING for field in fields(policy))
    )
