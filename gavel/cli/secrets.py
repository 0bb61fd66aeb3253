"""Commands about the caller's secrets: `gavel secret set|list|delete`. No command prints a value."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect
from gavel.cli.table import Rows
from gavel.client import Secret

secret_commands = typer.Typer(help="Store secrets for your jobs, list and delete them.", no_args_is_help=True)
SecretName = Annotated[str, typer.Argument(metavar="NAME", help="Also the name of the variable that jobs get.")]

app.add_typer(secret_commands, name="secret")


@secret_commands.command("set")
def set_secret(name: SecretName, as_json: Json = False) -> None:
    """Store a secret, or replace its value. It asks for the value, or reads it from stdin; a last newline is left out.

    gavel secret set HF_TOKEN < token.txt
    """
    value = typer.prompt(name, hide_input=True) if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    with connect() as client:
        show.answer([client.put_secret(name, value)], as_json, secrets_table)


@secret_commands.command("list")
def list_secrets(as_json: Json = False) -> None:
    """List your secrets by name. Their values are not shown."""
    with connect() as client:
        show.answer(client.secrets(), as_json, secrets_table)


@secret_commands.command("delete")
def delete_secret(name: SecretName, as_json: Json = False) -> None:
    """Delete a secret. Jobs that ask for it do not start any more. Shows those that are left."""
    with connect() as client:
        show.answer(client.delete_secret(name), as_json, secrets_table)


def secrets_table(items: Iterable[Secret]) -> Rows:
    """Return one line per secret."""
    table = Rows("NAME", "STORED")
    for each in items:
        table.add_row(each["name"], show.instant(each["updated_at_s"]))
    return table
