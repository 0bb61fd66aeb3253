"""Commands for operators: `gavel tier list|show|set|usage`, `gavel user ..`, `gavel token ..`, `gavel audit`."""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.resolving import OneJob
from gavel.cli.submit_options import seconds_if
from gavel.cli.table import Rows
from gavel.client import AuditEntry, UserLink

tier_commands = typer.Typer(help="List tiers, try a change of one, make it.", no_args_is_help=True)
user_commands = typer.Typer(help="List users, or say which tiers one may use.", no_args_is_help=True)
token_commands = typer.Typer(help="Create bearer tokens, list them, revoke them.", no_args_is_help=True)
TierName = Annotated[str, typer.Argument(metavar="TIER", autocompletion=completion.tiers)]
UserName = Annotated[str, typer.Argument(metavar="USER", autocompletion=completion.users)]

app.add_typer(tier_commands, name="tier")
app.add_typer(user_commands, name="user")
app.add_typer(token_commands, name="token")


@tier_commands.command("list")
def list_tiers(as_json: Json = False) -> None:
    """List tiers with their weights, objectives and guarantees."""
    with connect() as client:
        show.answer(client.tiers(), as_json, show.tiers)


@tier_commands.command("set")
def set_tier(  # noqa: PLR0913  one option per field of a tier
    name: TierName,
    *,
    weight: Annotated[float | None, typer.Option(help="Share of the cluster, relative to the other tiers.")] = None,
    objective: Annotated[str | None, typer.Option(help="Objective inside the tier, see `gavel policy list`.")] = None,
    within_user: Annotated[
        str | None, typer.Option(help="How one user's jobs share in a fairness tier: fast, equal, fifo, ..")
    ] = None,
    guarantee: Annotated[float | None, typer.Option(help="Fraction of every type it can always reach.")] = None,
    cap: Annotated[
        float | None, typer.Option(help="Fraction of every type that its jobs do not exceed on average.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Priority of jobs that state none; the most a user may state.")
    ] = None,
    max_jobs: Annotated[int | None, typer.Option(min=0, help="Unfinished jobs.")] = None,
    hours: Annotated[float | None, typer.Option(help="Accelerator hours a month, at each job's best speed.")] = None,
    budget: Annotated[float | None, typer.Option(help="USD a month, by the workers' prices.")] = None,
    non_preemptible_workers: Annotated[
        int | None, typer.Option(min=0, help="Workers that jobs which may not be preempted hold together.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="TIME", help="The most an interactive session may last, such as 12h.")
    ] = None,
    parent: Annotated[str | None, typer.Option(help="The tier that this one is below; '' for none.")] = None,
    unlimited: Annotated[bool, typer.Option("--unlimited", help="Drop the limits that no option names.")] = False,
    as_json: Json = False,
) -> None:
    """Create a tier, or change what the options name and leave the rest as it is."""
    named: dict[str, Any] = {
        "weight": weight,
        "objective": objective,
        "within_user": within_user,
        "guarantee": guarantee,
        "cap": cap,
        "default_priority": priority,
    }
    limits = {
        "max_jobs": max_jobs,
        "accelerator_hours_per_month": hours,
        "budget_usd_per_month": budget,
        "non_preemptible_workers": non_preemptible_workers,
        "session_longest_s": seconds_if("--session", session),
    }
    with connect() as client:
        stored = next((tier for tier in client.tiers() if tier["name"] == name), None)
        kept = named | {"parent": None} | ({} if unlimited else limits)
        stay: dict[str, Any] = (
            {} if stored is None else {field: value for field, value in stored.items() if field in kept}
        )
        if parent is not None:
            stay["parent"] = parent or None
        changed = {field: value for field, value in (named | limits).items() if value is not None}
        tier = client.put_tier(name, **stay | changed, version=stored["version"] if stored else None)
    show.answer([tier], as_json, show.tiers)


@tier_commands.command("show")
def show_tier(name: TierName, as_json: Json = False) -> None:
    """Show one tier."""
    with connect() as client:
        show.answer(client.tier(name), as_json, lambda tier: show.tiers([tier]))


@tier_commands.command("usage")
def show_usage(
    name: TierName,
    month: Annotated[str | None, typer.Option(metavar="YYYY-MM", help="UTC; default: this month.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a tier used in a month, with its limits."""
    with connect() as client:
        show.answer(client.usage(name, month), as_json, show.usage)


@app.command()
def audit(
    job: OneJob = None,
    user: Annotated[str | None, typer.Option(help="That touched this user.")] = None,
    subject: Annotated[
        str | None, typer.Option(help="Only decisions about this: tier/NAME, node/NAME, user/NAME.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """Show decisions and who made them, newest first: changes of tiers and users, user requests, preemptions."""
    with connect() as client:
        show.answer(list(client.audit(job_id=job, user=user, subject=subject, limit=limit)), as_json, audit_table)


def audit_table(items: Iterable[AuditEntry]) -> Rows:
    """Return one line per decision, with what it changed."""
    table = Rows(
        *("AT", "BY", "ACTION", "SUBJECT", "USER", "ROUND", "CHANGE"),
        spare=("ROUND", "USER", "CHANGE"),
        long=("CHANGE",),
    )
    for each in items:
        row = (each["by"], each["action"], each["subject"], each["user"], str(each["round_index"] or ""))
        table.add_row(show.instant(each["at_s"]), *row, show.harmless(_change(each["before"] or {}, each["after"])))
    return table


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what changed, such as `weight 1.0 → 2.0`; a value that was not there before has no arrow."""
    fields = ((name, _plain(before.get(name)), _plain(after.get(name))) for name in {**before, **after})
    return "; ".join(
        " ".join([name, *([old, "→"] if old else []), new]).rstrip() for name, old, new in fields if old != new
    )


def _plain(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@user_commands.command("list")
def list_users(as_json: Json = False) -> None:
    """List users and their tiers."""
    with connect() as client:
        show.answer(client.users(), as_json, show.users)


@user_commands.command("show")
def show_user(name: UserName, as_json: Json = False) -> None:
    """Show one user and its tiers."""
    with connect() as client:
        show.answer(client.user(name), as_json, lambda user: show.users([user]))


@user_commands.command("set")
def set_user(
    name: UserName,
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


@user_commands.command("link")
def link_user(
    name: UserName,
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="The provider's key of the person; without it: show it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let a person at the OpenID provider log in as this user. The login page names the subject to that person."""
    with connect() as client:
        link = client.link_user(name, subject) if subject else client.user_link(name)
        show.answer(link, as_json, link_table)


def link_table(link: UserLink) -> Rows:
    """Return who at the OpenID provider logs in as a user."""
    table = Rows("USER", "SUBJECT", "ISSUER", long=("ISSUER",))
    table.add_row(link["user"], show.harmless(link["subject"]), show.harmless(link["issuer"]))
    return table


@user_commands.command("unlink")
def unlink_user(name: UserName, as_json: Json = False) -> None:
    """Let nobody at the OpenID provider log in as this user any more, and end the sessions that began so."""
    with connect() as client:
        show.answer([client.unlink_user(name)], as_json, show.users)


@token_commands.command("create")
def create_token(
    user: UserName,
    scope: Annotated[
        str, typer.Option(help="user, operator, viewer (reads only), or node (cordons and drains).")
    ] = "user",
    as_json: Json = False,
) -> None:
    """Create a token for a user and print it. It cannot be shown again."""
    with connect() as client:
        show.answer({"user": user, "scope": scope, "token": client.create_token(user, scope)}, as_json, show.token)


@token_commands.command("list")
def list_tokens(user: UserName, as_json: Json = False) -> None:
    """List a user's tokens by their ids. The tokens themselves are not stored."""
    with connect() as client:
        show.answer(client.tokens(user), as_json, show.tokens)


@token_commands.command("revoke")
def revoke_token(
    user: UserName,
    token_ids: Annotated[list[str], typer.Argument(metavar="ID..", help="As `gavel token list` shows them.")],
    as_json: Json = False,
) -> None:
    """Revoke tokens; the service refuses them from then on. Shows those that are left."""
    with connect() as client:
        left = [client.revoke_token(user, each) for each in token_ids][-1]
        show.answer(left, as_json, show.tokens)
