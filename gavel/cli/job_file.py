"""A job file: a submit as YAML, which is checked with line and column; and `#GAVEL` lines of a script.

The fields are those of `POST /v1/jobs`; docs/job-file.schema.json describes them for editors.
"""

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand

from gavel.cli.connection import fail
from gavel.cli.option_names import option_of
from gavel.client import GavelApiError, Job, JobSubmit
from gavel.errors import did_you_mean

FIELDS = tuple(JobSubmit.__annotations__)
TEXTS = ("env", "labels")  # whose values are texts, whatever YAML takes them for
OPTION_LINE = "#GAVEL "
LINES_READ = 100


@dataclass(frozen=True, slots=True)
class JobFile:
    """The fields of a job file; without one there are none. `places` says where each is (`FILE:LINE:COLUMN`)."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def merged(self, wanted: JobSubmit, given: frozenset[str]) -> JobSubmit:
        """Return the file's fields, with those of `wanted` whose options (`given`) were on the command line."""
        own = {name: value for name, value in wanted.items() if option_of(name).lstrip("-").replace("-", "_") in given}
        own["argv"] = wanted["argv"]  # made of the program, wherever that is named
        if given & {"env", "env_file"}:
            own["env"] = {**self.fields.get("env", {}), **wanted["env"]}
        return cast(JobSubmit, {**wanted, **self.fields, **own})

    def place_of(self, name: str | None) -> str:
        """Return where the field of a refusal is, such as `body.tier`; "" if it is not in the file."""
        parts = (name or "").removeprefix("body.").split(".")
        return self.places.get(parts[0], "")


def read_job_file(path: Path) -> JobFile:
    """Return the fields of a job file. End the command with line and column where it is not one."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            fail(f"{path}:1:1: a job file has fields, such as total_steps: 500")
        places = _places(path, node)
        fields, texts = yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  texts only
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{path}"
        fail(f"{where}: {getattr(error, 'problem', None) or error}")
    return JobFile({**fields, **{name: texts[name] for name in TEXTS if name in fields}}, places)


def _places(path: Path, node: Any) -> dict[str, str]:
    """Return where each field is. End the command at one that is unknown or occurs twice."""
    places: dict[str, str] = {}
    for key, _ in node.value:
        where = f"{path}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if key.value not in FIELDS:
            hint = did_you_mean(key.value, FIELDS) or f"; there are {', '.join(FIELDS)}"
            fail(f"{where}: there is no field {key.value}{hint}")
        if key.value in places:
            fail(f"{where}: {key.value} is there twice")
        places[key.value] = where
    return places


def job_file_of(job: Job, now_s: float | None = None) -> str:
    """Return the job file that submits the same again, with the same code.

    Values of the environment are never shown, so its names are in a comment. A deadline that has passed is left out.
    """
    import yaml

    view = cast(Mapping[str, Any], job)
    fields = {name: view[name] for name in FIELDS if name != "env" and view[name] not in ("", None, [], {})}
    if view["kind_from"]:
        fields.pop("kind", None)
    if not view["has_stated_steps"]:
        fields.pop("total_steps", None)
    if fields.get("deadline_at_s", 0) <= (time.time() if now_s is None else now_s):
        fields.pop("deadline_at_s", None)
    comment = f"# job {job['id']}\n"
    if job["env"]:
        comment += f"# env: values are not shown; it had {', '.join(job['env'])} (give them here, or with --env)\n"
    return comment + str(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))


def options_in(program: str) -> list[str]:
    """Return the options in the `#GAVEL` lines of a script's first comment lines. End the command at a bad quote."""
    path = Path(program)
    if not path.is_file():
        return []
    options = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(islice(file, LINES_READ), start=1):
            if line.strip() and not line.startswith("#"):
                break
            if line.startswith(OPTION_LINE):
                options += _words(line.removeprefix(OPTION_LINE), f"{program}:{number}")
    return options


def _words(text: str, where: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        fail(f"{where}: {error}")
    if words and not words[0].startswith("-"):
        fail(f"{where}: {words[0]} is no option; write {OPTION_LINE}--steps 500")
    return words


class SubmitCommand(TyperCommand):
    """The command `submit`, which reads options from the script's `#GAVEL` lines, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the script before those of the command line, which win."""
        named, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        program = named.get("program")
        return super().parse_args(ctx, [*(options_in(program[0]) if program else ()), *args])


def options_given(context: typer.Context) -> frozenset[str]:
    """Return the options that were on the command line, or in the script's `#GAVEL` lines."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")


@contextmanager
def placed(job_file: JobFile) -> Iterator[None]:
    """Name line and column of what the service refuses, if it is in the job file."""
    try:
        yield
    except GavelApiError as error:
        if place := job_file.place_of(error.field):
            fail(f"{place}: {error.detail}")
        raise
