"""The option of a command that sets a field of the API, so that a refusal names what was typed and not the field."""

import typer

from gavel.client import GavelApiError

OPTIONS = {  # where the option is not the field's own name
    "accelerator_memory_bytes": "--accelerator-memory",
    "accelerator_hours_per_month": "--hours",
    "accelerator_share": "--share",
    "array_id": "--array",
    "budget_usd_per_month": "--budget",
    "candidates": "--candidate",
    "cpu_cores": "--cpus",
    "data_bytes": "--data-set",
    "data_region": "--data-set",
    "deadline_at_s": "--deadline",
    "default_priority": "--priority",
    "epoch_s": "--epoch",
    "idle_s": "--idle",
    "job_id": "--job",
    "labels": "--label",
    "longest_s": "--longest",
    "memory_bytes": "--memory",
    "node_labels": "--node-label",
    "nodes_added": "--add",
    "nodes_gone": "--remove",
    "parameters": "--array",
    "plans": "--plan",
    "regions": "--region",
    "reserved_at_s": "--at",
    "secrets": "--secret",
    "session_longest_s": "--session",
    "throughputs": "--throughput",
    "topology_label": "--node-label",
    "total_steps": "--steps",
}
PARTS_OF_REQUESTS = ("body", "query", "job")  # that a field's path begins with
_of_command: set[str] = set()


def option_of(field: str) -> str:
    """Return the option for a field of the API, such as `--steps` for `total_steps`."""
    return OPTIONS.get(field, "--" + field.replace("_", "-"))


def note_options(context: typer.Context, value: bool) -> bool:
    """Remember the options of the command that runs now: only these are named. Every command has --json, which asks."""
    _of_command.clear()
    _of_command.update(option for each in context.command.params for option in each.opts)
    return value


def named(error: GavelApiError) -> str:
    """Return a refusal for people: with the option for the field that was refused, if the command has one."""
    path = _field_of(error)
    if not path:
        return str(error)
    option = "PROGRAM" if path[0] == "argv" else option_of(path[0])
    if option not in _of_command and not (option == "PROGRAM" and "program" in _of_command):
        return str(error).replace(error.field or "", ".".join(path), 1)
    part = path[1:] if option == "PROGRAM" else [each for each in path[1:] if not each.isdigit()]
    return f"{' '.join([option, *part])}: {error.detail.removeprefix(f'{error.field}: ')}"


def by_field(error: GavelApiError) -> str:
    """Return what is wrong with a field, which the text names as a job file does."""
    return f"{'.'.join(_field_of(error))}: {error.detail.removeprefix(f'{error.field}: ')}"


def _field_of(error: GavelApiError) -> list[str]:
    """Return the path of the refused field, without the part of the request that it is in."""
    path = (error.field or "").split(".")
    while path and path[0] in ("", *PARTS_OF_REQUESTS):
        path.pop(0)
    return path
