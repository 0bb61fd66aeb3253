"""Commands about accelerator types on which jobs did not fit: `gavel infeasible list|clear`."""

from collections.abc import Iterable
from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect
from gavel.cli.table import Rows
from gavel.client import InfeasibleType

infeasible_commands = typer.Typer(
    help="List the accelerator types on which your jobs did not fit, and clear such a mark.", no_args_is_help=True
)
app.add_typer(infeasible_commands, name="infeasible")


@infeasible_commands.command("list")
def list_infeasible_types(as_json: Json = False) -> None:
    """List accelerator types on which your jobs did not fit (operators: everybody's), with what was seen."""
    with connect() as client:
        show.answer(client.infeasible_types(), as_json, infeasible_table)


@infeasible_commands.command("clear")
def clear_infeasible_type(
    mark: Annotated[str, typer.Argument(metavar="ID", help="Its id, see `gavel infeasible list`.")],
    as_json: Json = False,
) -> None:
    """Clear a mark: jobs of that user, kind and scale factor are given the accelerator type again."""
    with connect() as client:
        show.answer(client.clear_infeasible_type(mark), as_json, show.operation)


def infeasible_table(items: Iterable[InfeasibleType]) -> Rows:
    """Return one line per mark."""
    table = Rows("ID", "USER", "KIND", "WORKERS", "TYPE", "SINCE", "EVIDENCE")
    for each in items:
        size, since = str(each["scale_factor"]), show.instant(each["at_s"])
        evidence = show.harmless(each["evidence"])
        table.add_row(each["id"], each["user"], each["kind"], size, each["accelerator_type"], since, evidence)
    return table
