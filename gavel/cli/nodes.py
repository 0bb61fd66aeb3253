"""Commands about nodes: list them, take them out of service and back."""

from typing import Annotated

import typer

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect
from gavel.client import Client, Operation

node_commands = typer.Typer(help="List nodes; take one out of service, or back.", no_args_is_help=True)
operation_commands = typer.Typer(help="Show the outcome of a command to the scheduler.", no_args_is_help=True)
app.add_typer(node_commands, name="node")
app.add_typer(operation_commands, name="operation")

Name = Annotated[
    str,
    typer.Argument(metavar="NODE", help="Its name, see `gavel node list`.", autocompletion=completion.nodes),
]


@node_commands.command("list")
def list_nodes(as_json: Json = False) -> None:
    """List nodes with their states: ready, cordoned, draining, drained, lost."""
    with connect() as client:
        show.answer(client.nodes(), as_json, show.nodes)


@node_commands.command("show")
def show_node(name: Name, as_json: Json = False) -> None:
    """Show one node."""
    with connect() as client:
        show.answer(client.node(name), as_json, lambda node: show.nodes([node]))


@operation_commands.command("show")
def show_operation(
    operation_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the command printed.")],
    as_json: Json = False,
) -> None:
    """Show the outcome of a command to the scheduler; exit code 1 if it failed."""
    with connect() as client:
        operation = client.operation(operation_id)
    show.answer(operation, as_json, show.operation)
    raise typer.Exit(int(operation["state"] == "failed"))


@node_commands.command("cordon")
def cordon(name: Name, as_json: Json = False) -> None:
    """Give no new leases on a node. Gangs there run until their leases end."""
    with connect() as client:
        _tell(client, client.cordon(name), as_json)


@node_commands.command("uncordon")
def uncordon(name: Name, as_json: Json = False) -> None:
    """Give leases on a node again. This ends a drain, too."""
    with connect() as client:
        _tell(client, client.uncordon(name), as_json)


@node_commands.command("drain")
def drain(
    name: Name,
    window: Annotated[float, typer.Option(min=0, help="Seconds until no gang may be left there.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Empty a node. Gangs leave when their leases end; those left checkpoint and stop within the window."""
    with connect() as client:
        _tell(client, client.drain(name, window), as_json)


def _tell(client: Client, operation: Operation, as_json: bool) -> None:
    """Print the outcome. A scheduler that has not answered yet will still carry out the command."""
    if as_json or operation["state"] == "pending":
        waits = f"asked for; the scheduler has not done it yet (operation {operation['id']})"
        show.answer(operation, as_json, lambda _: waits)
        return
    name = operation["subject"].removeprefix("node/")
    show.answer([each for each in client.nodes() if each["name"] == name], as_json, show.nodes)
