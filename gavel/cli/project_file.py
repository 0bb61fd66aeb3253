"""The project's file `gavel.yaml`: what its jobs have in common (`defaults`), and named variants (`profiles`).

Both have the fields of a job file. docs/project-file.schema.json describes the file for editors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.cli.connection import fail
from gavel.cli.job_file import JobFile, composed, fields_of, read_job_file
from gavel.errors import did_you_mean

NAME = "gavel.yaml"
PARTS = ("defaults", "profiles")


def project_file() -> Path | None:
    """Return the path of the nearest `gavel.yaml`, here or in a folder above; None if there is none."""
    here = Path.cwd()
    return next((folder / NAME for folder in (here, *here.parents) if (folder / NAME).is_file()), None)


def project_fields(profile: str | None) -> JobFile:
    """Return the fields of the project's defaults, and of a profile, which go before them.

    End the command for a profile that is not there, and with line and column for a field that is unknown.
    """
    path = project_file()
    if path is None:
        return JobFile() if profile is None else fail(f"--profile {profile}: there is no {NAME} here or above")
    parts = _parts(path, composed(path, NAME), "", PARTS)
    profiles = _parts(path, parts["profiles"], "profiles") if "profiles" in parts else {}
    read = {name: fields_of(path, each, f"profile {name}") for name, each in profiles.items()}  # a mistake shows early
    if profile is not None and profile not in read:
        hint = did_you_mean(profile, read) or f"; there are {', '.join(read) or 'none'}"
        fail(f"--profile {profile}: there is no such profile in {path}{hint}")
    common = fields_of(path, parts["defaults"], "defaults") if "defaults" in parts else JobFile()
    chosen = JobFile() if profile is None else read[profile]
    return chosen.over(common, _below(path.parent, {**common.fields, **chosen.fields}))


def submit_fields(file: Path | None, profile: str | None) -> JobFile:
    """Return the fields of a job file, if one is named, over those of the project."""
    return (read_job_file(file) if file else JobFile()).over(project_fields(profile))


def _parts(path: Path, node: Any, what: str, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the nodes of a mapping by name. End the command for another node, or a name that is not of `names`."""
    import yaml

    where = f"{path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
    if not isinstance(node, yaml.MappingNode):
        fail(f"{where}: {what or NAME} has {' and '.join(names or ('a name',))}, each with fields such as tier: gold")
    for key, _ in node.value:
        if names and key.value not in names:
            hint = did_you_mean(key.value, names) or f"; there are {' and '.join(names)}"
            fail(f"{path}:{key.start_mark.line + 1}:{key.start_mark.column + 1}: there is no part {key.value}{hint}")
    return {key.value: value for key, value in node.value}


def _below(folder: Path, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with a working directory that is relative to the project's file, and not to the caller."""
    workdir = fields.get("workdir")
    return fields if not isinstance(workdir, str) else {**fields, "workdir": str(folder / Path(workdir).expanduser())}
