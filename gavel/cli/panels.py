"""The headings under which `gavel --help` lists the commands."""

from typer import Typer
from typer.core import TyperGroup
from typer.models import CommandInfo, TyperInfo

PANELS = {
    "Jobs": "job init run",
    "The cluster now": "top watch summary queue allocations placements shares cluster round",
    "Why, and what if": "what-if calibration",
    "Speeds": "throughputs catalogue profile",
    "Rules": "policy tier user token secret notification audit",
    "Nodes and names": "node resource infeasible operation",
    "The service": "serve demo health doctor metrics version db",
    "Histories": "simulate export-trace export-metrics",
}


class Arranged(TyperGroup):
    """Lists commands and groups in the order of PANELS."""

    def list_commands(self, ctx: object) -> list[str]:
        """Return the names in that order."""
        return [name for names in PANELS.values() for name in names.split()]


def arrange(app: Typer) -> None:
    """Put each command and group of `app` under its heading, in this order. Raise KeyError if one has no heading."""
    panels = {name: panel for panel, names in PANELS.items() for name in names.split()}
    commands: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
    for each in commands:
        each.rich_help_panel = panels[_name(each)]
    app.info.cls = Arranged


def _name(each: CommandInfo | TyperInfo) -> str:
    """Return the name as users type it."""
    return each.name or str(getattr(each.callback, "__name__", ""))
