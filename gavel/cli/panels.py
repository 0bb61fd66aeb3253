"""Under which headings `gavel --help` lists the commands."""

from typer import Typer
from typer.models import CommandInfo, TyperInfo

PANELS = {
    "Your jobs": "submit submit-batch jobs job logs events set pause resume cancel",
    "Why, and what if": "explain calibration what-if preview-tier replay",
    "The cluster now": "top watch summary queue allocations placements shares rounds round cluster",
    "Speeds": "throughputs catalogue profile",
    "Rules": "policies policy audit tiers users token",
    "Nodes and names": "nodes operation node resource",
    "The service": "serve demo health metrics version db",
    "Histories": "simulate export-trace",
}


def arrange(app: Typer) -> None:
    """Put each command and group of `app` under its heading, in this order; raises KeyError for one that is in none."""
    panels = {name: panel for panel, names in PANELS.items() for name in names.split()}
    order = list(panels)
    app.registered_commands.sort(key=lambda each: order.index(_name(each)))
    known: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
    for each in known:
        each.rich_help_panel = panels[_name(each)]


def _name(each: CommandInfo | TyperInfo) -> str:
    """As users type it."""
    return each.name or str(getattr(each.callback, "__name__", ""))
