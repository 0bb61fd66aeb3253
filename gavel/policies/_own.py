"""Policies of the operator's own: the files of a folder, executed with the rights of the service."""

import importlib.util
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from gavel.errors import InvalidRequest


def own_policies(folder: Path) -> tuple[Any, ...]:
    """POLICY of every file of `folder` whose name does not start with `_`; raises InvalidRequest naming the file."""
    if not folder.is_dir():
        raise InvalidRequest("policy_path", f"{folder} is no folder; name the folder that holds your policy files")
    return tuple(_policy_of(file) for file in sorted(folder.glob("*.py")) if not file.name.startswith("_"))


def _policy_of(file: Path) -> Any:
    name = f"gavel_own_policy_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a file raises, its operator is to hear which one and why
        raise InvalidRequest("policy_path", f"{file} raised {type(error).__name__}: {error}") from error
    policy = getattr(module, "POLICY", None)
    if not _is_policy(policy):
        wanted = "a dataclass with texts name, formula and source, allocate(problem), and a default for each field"
        raise InvalidRequest("policy_path", f"{file} needs POLICY, {wanted}")
    return policy


def _is_policy(policy: Any) -> bool:
    return (
        isinstance(policy, type)
        and is_dataclass(policy)
        and all(isinstance(getattr(policy, text, None), str) for text in ("name", "formula", "source"))
        and callable(getattr(policy, "allocate", None))
        and all(field.default is not MISSING for field in fields(policy))
    )
