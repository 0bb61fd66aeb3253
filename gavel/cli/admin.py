"""Commands for operators: tiers, users, token."""

from typing import Annotated

import typer

from gavel.cli import show
from gavel.cli.connection import Json, app, connect, fail

tiers = typer.Typer(help="List tiers, or change one.", invoke_without_command=True)
users = typer.Typer(help="List users, or say which tiers one may use.", invoke_without_command=True)
token = typer.Typer(help="Make bearer tokens.", no_args_is_help=True)
app.add_typer(tiers, name="tiers")
app.add_typer(users, name="users")
app.add_typer(token, name="token")


@tiers.callback()
def _tiers(context: typer.Context, as_json: Json = False) -> None:
    """List tiers, or change one."""
    if context.invoked_subcommand is None:
        list_tiers(as_json)


@tiers.command("list")
def list_tiers(as_json: Json = False) -> None:
    """List tiers with their weights, objectives and guarantees."""
    with connect() as client:
        show.answer(client.tiers(), as_json, show.tiers)


@tiers.command("set")
def set_tier(
    name: str,
    weight: Annotated[float | None, typer.Option(help="Share of the cluster, relative to the other tiers.")] = None,
    objective: Annotated[str | None, typer.Option(help="Objective inside the tier, see `gavel policies`.")] = None,
    guarantee: Annotated[float | None, typer.Option(help="Fraction of every type it can always reach.")] = None,
    as_json: Json = False,
) -> None:
    """Create a tier, or change what the options name and leave the rest as it is."""
    with connect() as client:
        known = next((tier for tier in client.tiers() if tier["name"] == name), None)
        weight = weight if weight is not None else (known["weight"] if known else 1.0)
        objective = objective or (known["objective"] if known else "fairness")
        guarantee = guarantee if guarantee is not None else (known["guarantee"] if known else 0.0)
        version = known["version"] if known else None
        tier = client.put_tier(name, weight=weight, objective=objective, guarantee=guarantee, version=version)
    show.answer([tier], as_json, show.tiers)


@users.callback()
def _users(context: typer.Context, as_json: Json = False) -> None:
    """List users, or say which tiers one may use."""
    if context.invoked_subcommand is None:
        list_users(as_json)


@users.command("list")
def list_users(as_json: Json = False) -> None:
    """List users and their tiers."""
    with connect() as client:
        show.answer(client.users(), as_json, show.users)


@users.command("set")
def set_user(
    name: str,
    tier: Annotated[
        list[str] | None, typer.Option(help="A tier it may use; repeatable, the first is the default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a user, or replace the tiers it may use."""
    if not tier:
        fail("--tier: name at least one tier")
    with connect() as client:
        show.answer([client.put_user(name, tier)], as_json, show.users)


@token.command("create")
def create_token(
    user: str,
    scope: Annotated[str, typer.Option(help="user, or operator.")] = "user",
    as_json: Json = False,
) -> None:
    """Make a token for a user and print it; it cannot be shown again."""
    with connect() as client:
        show.answer({"user": user, "scope": scope, "token": client.create_token(user, scope)}, as_json, show.token)
