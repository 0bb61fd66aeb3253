"""The headings under which `gavel --help` lists the commands."""

from collections.abc import Iterable
from typing import Any

from typer import Typer
from typer.core import TyperGroup
from typer.models import CommandInfo, TyperInfo

PANELS = {
    "Jobs": "submit job download interactive reservations attach port-forward init run",
    "The cluster now": "top watch summary queue allocations placements shares cluster round",
    "Why, and what if": "what-if calibration",
    "Speeds": "throughputs catalogue profile",
    "Rules": "policy autopilot tier user token secret notification audit",
    "Nodes and names": "node resource infeasible operation",
    "The service": "serve demo health doctor metrics version db kubernetes",
    "Histories": "simulate search-priority suite export-trace export-metrics",
}


class Arranged(TyperGroup):
    """Lists commands and groups in the order of PANELS."""

    def list_commands(self, ctx: object) -> list[str]:
        """Return the names in that order."""
        return [name for names in PANELS.values() for name in names.split()]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name. One that only groups have is refused with its whole name."""
        whole = [f"gavel {group} {args[0]}" for group, each in self.commands.items() if args[0] in _commands_of(each)]
        if args[0] not in self.commands and whole:
            ctx.fail(f"No such command '{args[0]}'. Did you mean {', '.join(map(repr, whole))}?")
        return super().resolve_command(ctx, args)


def _commands_of(group: object) -> Iterable[str]:
    return getattr(group, "commands", ())


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
