"""Nodes: look at them, take them out of service and back."""

from typing import Annotated

import typer

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect
from gavel.client import Client, Operation

node = typer.Typer(help="Take a node out of service, or back.", no_args_is_help=True)
app.add_typer(node, name="node")

Name = Annotated[
    str, typer.Argument(metavar="NODE", help="Its name, as `gavel nodes` shows it.", autocompletion=completion.nodes)
]


@app.command("nodes")
def list_nodes(as_json: Json = False) -> None:
    """List nodes with their states: ready, cordoned, draining, drained, lost."""
    with connect() as client:
        show.answer(client.nodes(), as_json, show.nodes)


@node.command("show")
def show_node(name: Name, as_json: Json = False) -> None:
    """Show one node."""
    with connect() as client:
        show.answer(client.node(name), as_json, lambda found: show.nodes([found]))


@app.command("operation")
def show_operation(
    operation_id: Annotated[str, typer.Argument(metavar="ID", help="As the call that asked for it said.")],
    as_json: Json = False,
) -> None:
    """Show what became of something asked of the scheduler; exit code 1 if it failed."""
    with connect() as client:
        found = client.operation(operation_id)
    show.answer(found, as_json, show.operation)
    raise typer.Exit(int(found["state"] == "failed"))


@node.command("cordon")
def cordon(name: Name, as_json: Json = False) -> None:
    """Give no new leases on a node; gangs there go on to the end of theirs."""
    with connect() as client:
        _tell(client, client.cordon(name), as_json)


@node.command("uncordon")
def uncordon(name: Name, as_json: Json = False) -> None:
    """Give leases on a node again; ends a drain, too."""
    with connect() as client:
        _tell(client, client.uncordon(name), as_json)


@node.command("drain")
def drain(
    name: Name,
    window: Annotated[float, typer.Option(min=0, help="Seconds until no gang may be left there.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Empty a node: gangs leave at the end of their lease; what is left checkpoints and stops within the window."""
    with connect() as client:
        _tell(client, client.drain(name, window), as_json)


def _tell(client: Client, operation: Operation, as_json: bool) -> None:
    """What became of it; the scheduler that did not answer yet will still do it."""
    if as_json or operation["state"] == "pending":
        waits = f"asked for; the scheduler has not done it yet (operation {operation['id']})"
        show.answer(operation, as_json, lambda _: waits)
        return
    name = operation["subject"].removeprefix("node/")
    show.answer([each for each in client.nodes() if each["name"] == name], as_json, show.nodes)
