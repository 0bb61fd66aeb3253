"""Commands about notifications: `gavel notification show|set|list|test`."""

import time
from collections.abc import Iterable
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect
from gavel.cli.submit_options import occasions_of
from gavel.cli.table import Rows
from gavel.client import Client, Notification, NotificationSettings

notification_commands = typer.Typer(
    help="Choose what you are notified of, and where; try it; see what was sent.", no_args_is_help=True
)
app.add_typer(notification_commands, name="notification")

TEST_LIMIT_S = 30.0
POLL_S = 0.3
OfUser = Annotated[
    str | None, typer.Option("--user", help="Another user; operators only.", autocompletion=completion.users)
]


@notification_commands.command("show")
def show_settings(user: OfUser = None, as_json: Json = False) -> None:
    """Show what you chose to be notified of, and where."""
    with connect() as client:
        show.answer(client.notification_settings(user), as_json, settings_table)


@notification_commands.command("set")
def set_settings(
    occasions: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="end, failure, no-progress, with commas, or none: for jobs without --notify."
        ),
    ] = None,
    email: Annotated[str | None, typer.Option(metavar="ADDRESS", help="E-mail address; '' for none.")] = None,
    webhook_url: Annotated[str | None, typer.Option(metavar="URL", help="A webhook of your own; '' for none.")] = None,
    user: OfUser = None,
    as_json: Json = False,
) -> None:
    """Change what the options name, and leave the rest as it is.

    gavel notification set --occasions failure,no-progress --email ann@example.org
    """
    with connect() as client:
        now = client.notification_settings(user)
        chosen = client.put_notification_settings(
            user,
            occasions=cast(Any, now["occasions"]) if occasions is None else occasions_of(occasions),
            email=(now["email"] if email is None else email) or None,
            webhook_url=(now["webhook_url"] if webhook_url is None else webhook_url) or None,
        )
    show.answer(chosen, as_json, settings_table)


@notification_commands.command("list")
def list_notifications(
    state: Annotated[str | None, typer.Option(help="waiting, delivered or failed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show at most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List what was sent and what waits, newest first: yours, or everybody's for an operator."""
    with connect() as client:
        show.answer(client.notifications(state=state, limit=limit), as_json, notifications_table)


@notification_commands.command("test")
def test_settings(as_json: Json = False) -> None:
    """Send a test message to each of your addresses, and show what became of it. It ends with 1 if one failed."""
    with connect() as client:
        sent = _until_sent(client, {each["id"] for each in client.test_notifications()})
    show.answer(sent, as_json, notifications_table)
    raise typer.Exit(0 if all(each["state"] == "delivered" for each in sent) else 1)


def _until_sent(client: Client, ids: set[int]) -> list[Notification]:
    """Return these notifications once none waits, or after the limit."""
    end_s = time.monotonic() + TEST_LIMIT_S
    while True:
        sent = [each for each in client.notifications(limit=200) if each["id"] in ids]
        if all(each["state"] != "waiting" for each in sent) or time.monotonic() > end_s:
            return sent
        time.sleep(POLL_S)


def settings_table(chosen: NotificationSettings) -> Table:
    """Return what a user chose, one line for each fact."""
    return show.grid(
        {
            "user": chosen["user"],
            "notified of": ", ".join(chosen["occasions"]) or "nothing, unless a job says --notify",
            "e-mail": chosen["email"],
            "webhook": chosen["webhook_url"],
            "reached by": ", ".join(chosen["channels"]) or "nothing yet: set --email or --webhook-url",
        }
    )


def notifications_table(items: Iterable[Notification]) -> Rows:
    """Return one line per notification."""
    table = Rows("AT", "JOB", "OF", "BY", "TO", "STATE", "ATTEMPTS", "ERROR", spare=("ATTEMPTS",), long=("ERROR", "TO"))
    for each in items:
        where = show.harmless(each["address"]) if each["address"] else "the operator's webhook"
        error = show.harmless(each["error"])
        row = (each["job_id"] or "test", each["occasion"], each["channel"], where, each["state"], str(each["attempts"]))
        table.add_row(show.instant(each["at_s"]), *row, error)
    return table
