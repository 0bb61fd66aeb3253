"""Commands about ephemeral resources, for operators: names that steer where the tasks of applications start."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.table import Rows
from gavel.client import Resource

resource_commands = typer.Typer(help="List ephemeral resources, set one, delete one.", no_args_is_help=True)
app.add_typer(resource_commands, name="resource")

Name = Annotated[str, typer.Argument(metavar="NAME", help="What tasks ask for.")]
Owner = Annotated[str | None, typer.Option(help="Whose name; default: yours.")]


@resource_commands.command("list")
def list_resources(as_json: Json = False) -> None:
    """List the names that are set, by node."""
    with connect() as client:
        show.answer(client.cluster()["resources"], as_json, resource_table)


@resource_commands.command("set")
def set_resource(
    name: Name,
    capacity: Annotated[int, typer.Option(min=0, help="How much of it each node has.")] = 1,
    node: Annotated[list[str] | None, typer.Option(help="On this node; repeatable.")] = None,
    ttl: Annotated[float, typer.Option(help="Seconds until it is deleted, unless it is set again.")] = 60.0,
    owner: Owner = None,
    as_json: Json = False,
) -> None:
    """Create, resize or renew a name."""
    if not node:
        fail("--node: name at least one node, see `gavel node list`")
    with connect() as client:
        show.answer(client.set_resource(name, capacity, node, ttl_s=ttl, owner=owner), as_json, show.operation)


@resource_commands.command("delete")
def delete_resource(name: Name, owner: Owner = None, as_json: Json = False) -> None:
    """Delete a name on all nodes. Tasks that hold it keep it; no new task starts by it."""
    with connect() as client:
        show.answer(client.delete_resource(name, owner=owner), as_json, show.operation)


@resource_commands.command("apply")
def apply_resources(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="JSON list, as `POST /v1/resources/batch` takes it.")],
    as_json: Json = False,
) -> None:
    """Set many names in one transaction: all of them, or none."""
    try:
        items = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    with connect() as client:
        show.answer(client.set_resources(items), as_json, show.operation)


def resource_table(items: Iterable[Resource]) -> Rows:
    """Return one line per name and node."""
    table = Rows("NAME", "OWNER", "NODE", "CAPACITY", "FREE", "UNTIL", spare=("UNTIL",))
    for each in items:
        amounts = (str(each["capacity"]), str(each["free"]))
        table.add_row(each["name"], each["owner"], each["node"], *amounts, show.instant(each["lease_expires_at_s"]))
    return table
