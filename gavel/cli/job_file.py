"""A job file: a submit as YAML, which is checked with line and column; and `#GAVEL` lines of a script.

The fields are those of `POST /v1/jobs`; docs/job-file.schema.json describes them for editors.
"""

import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, cast

import typer
from typer.core import TyperCommand

from gavel.cli.connection import fail
from gavel.cli.option_names import by_field, option_of
from gavel.cli.sbatch_lines import options_of_sbatch
from gavel.client import GavelApiError, Job, JobSubmit
from gavel.errors import did_you_mean

FIELDS = tuple(JobSubmit.__annotations__)
TEXTS = ("env", "labels")  # whose values are texts, whatever YAML takes them for
OPTION_LINE = "#GAVEL "
OPTION_LINES = re.compile(r"#GAVEL |# GAVEL (?=-)")  # some formatters put a blank after each #
LINES_READ = 100
COMMAND_LINE = "gavel.command_line"  # in the meta of a context: the parameters that the command line itself names


@dataclass(frozen=True, slots=True)
class Given:
    """The options that were on the command line, and those that only the script's `#GAVEL` lines have."""

    command_line: frozenset[str]
    script: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JobFile:
    """The fields of a job file and of the project's file; without both there are none.

    `places` says where each is (`FILE:LINE:COLUMN`), `of_project` which of them only the project's file has.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    of_project: frozenset[str] = frozenset()

    def over(self, project: "JobFile", fields: Mapping[str, Any] | None = None) -> "JobFile":
        """Return these fields with those of the project that they do not have (or `fields` of both together)."""
        both = {**project.fields, **self.fields} if fields is None else fields
        return JobFile(both, {**project.places, **self.places}, frozenset(both.keys() - self.fields.keys()))

    def merged(self, wanted: JobSubmit, given: Given) -> JobSubmit:
        """Return the fields, with those of `wanted` whose options were given.

        The command line goes before the job file, this before `#GAVEL` lines, these before the project's file.
        """
        own = {name: value for name, value in wanted.items() if self._yields_to(name, given)}
        own["argv"] = wanted["argv"]  # made of the program, wherever that is named
        if (given.command_line | given.script) & {"env", "env_file"}:
            own["env"] = {**wanted["env"], **self.fields.get("env", {})}
            if given.command_line & {"env", "env_file"}:
                own["env"] = {**self.fields.get("env", {}), **wanted["env"]}
        return cast(JobSubmit, {**wanted, **self.fields, **own})

    def _yields_to(self, name: str, given: Given) -> bool:
        option = option_of(name).lstrip("-").replace("-", "_")
        return option in given.command_line or (option in given.script and name in self.of_project)

    def workdir(self, option: Path, given: Given) -> Path:
        """Return the working directory: of the command line, else of these fields, else the option's default."""
        in_file = None if "workdir" in given.command_line else self.fields.get("workdir")
        return option if in_file is None else Path(in_file)

    def place_of(self, name: str | None) -> str:
        """Return where the field of a refusal is, such as `body.tier`; "" if it is not in the file."""
        parts = (name or "").removeprefix("body.").split(".")
        return self.places.get(parts[0], "")


def read_job_file(path: Path) -> JobFile:
    """Return the fields of a job file. End the command with line and column where it is not one."""
    return fields_of(path, composed(path, "a job file"), "a job file")


def composed(path: Path, what: str) -> Any:
    """Return the node of a YAML file. End the command with line and column where it is none, or has nothing in it."""
    import yaml

    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (yaml.YAMLError, ValueError) as error:
        _fail_at(path, error)
    return node if node is not None else fail(f"{path}:1:1: {what} has fields, such as total_steps: 500")


def fields_of(path: Path, node: Any, what: str) -> JobFile:
    """Return the fields of a node of a file. End the command with line and column where they cannot be used."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        where = f"{path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
        fail(f"{where}: {what} has fields, such as total_steps: 500")
    places = _places(path, node)
    try:
        fields, texts = (loader.construct_document(node) for loader in (yaml.SafeLoader(""), yaml.BaseLoader("")))
    except (yaml.YAMLError, ValueError) as error:
        _fail_at(path, error)
    return JobFile({**fields, **{name: texts[name] for name in TEXTS if name in fields}}, places)


def _fail_at(path: Path, error: Exception) -> NoReturn:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{path}"
    fail(f"{where}: {getattr(error, 'problem', None) or error}")


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

    Values of the environment are never shown, so its names are in a comment. A deadline or a reservation that has
    passed is left out.
    """
    import yaml

    from gavel.types.elastic_kinds import rigid_kind

    view = cast(Mapping[str, Any], job)
    fields = {name: view[name] for name in FIELDS if name != "env" and _is_stated(name, view[name])}
    if view["sizes"]:
        fields.pop("scale_factor", None)
    fields["kind"] = rigid_kind(view["kind"])
    if view["plans"]:
        fields["plans"] = [_plan(each) for each in view["plans"]]
    if view["kind_from"]:
        fields.pop("kind", None)
    elif "/" not in view["kind"]:  # a kind of the catalogue brings its own program
        fields.pop("argv", None)
    fields.pop("total_steps", None)
    if view["submitted_steps"] is not None:
        fields["total_steps"] = view["submitted_steps"]
    for name in ("deadline_at_s", "reserved_at_s"):
        if fields.get(name, 0) <= (time.time() if now_s is None else now_s):
            fields.pop(name, None)
    comment = f"# job {job['id']}\n"
    if job["env"]:
        comment += f"# env: values are not shown; it had {', '.join(job['env'])} (give them here, or with --env)\n"
    return comment + str(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))


def _plan(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a submission that makes the one that is shown."""
    return {name: value for name, value in shown.items() if name != "kind" and value not in ([], {}, 0)}


def _is_stated(name: str, value: object) -> bool:
    """Return whether a value differs from that of a field that is left out. No notifications do: `notify: []`."""
    return value not in ("", None, [], {}) or (name == "notify" and value == [])


def options_in(program: str, names: Collection[str]) -> list[str]:
    """Return the options in the `#GAVEL` lines of a script's first comment lines.

    End the command, with the line, at a bad quote or an option that is not among `names`.
    """
    path = Path(program)
    if not path.is_file():
        return []
    options = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(islice(file, LINES_READ), start=1):
            if line.strip() and not line.startswith("#"):
                break
            if match := OPTION_LINES.match(line):
                options += _words(line[match.end() :], f"{program}:{number}", names)
    return options


def _words(text: str, where: str, names: Collection[str]) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        fail(f"{where}: {error}")
    if words and not words[0].startswith("-"):
        fail(f"{where}: {words[0]} is no option; write {OPTION_LINE}--steps 500")
    for name in (word.partition("=")[0] for word in words if word.startswith("--")):
        if name not in names:
            fail(f"{where}: there is no option {name}{did_you_mean(name, names)}")
    return words


class SubmitCommand(TyperCommand):
    """The command `submit`, which reads options from the script's `#GAVEL` and `#SBATCH` lines, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the script before those of the command line, which win."""
        named, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        program = named.get("program")
        ctx.meta[COMMAND_LINE] = frozenset(named)
        names = [option for each in self.params for option in (*each.opts, *each.secondary_opts)]
        return super().parse_args(ctx, [*(_options_of(program[0], names) if program else ()), *args])


def _options_of(program: str, names: Collection[str]) -> list[str]:
    """Return the options in a script's lines for Slurm, and behind them, since they win, those in its own for Gavel."""
    options, left_out = options_of_sbatch(program)
    if left_out:
        typer.echo(f"{program}: left out, as they mean nothing here: #SBATCH {', '.join(left_out)}", err=True)
    return [*options, *options_in(program, names)]


def options_given(context: typer.Context) -> Given:
    """Return the options that were on the command line, and those in the script's `#GAVEL` lines."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
    command_line: frozenset[str] = given & context.meta[COMMAND_LINE]
    return Given(command_line, given - command_line)


@contextmanager
def placed(job_file: JobFile) -> Iterator[None]:
    """Name line and column of what the service refuses, if it is in the job file."""
    try:
        yield
    except GavelApiError as error:
        if place := job_file.place_of(error.field):
            fail(f"{place}: {by_field(error)}")
        raise
