"""Every operation of the service has a call of the client and a command, or a reason why not."""

from typing import Any

import pytest
import typer

from gavel.cli import app
from gavel.client import Client
from gavel.client.script import Listing, Method
from tests.api.conftest import Service, service

__all__ = ["service"]

# operation: (the client's call, the command); a text in brackets is a reason why there is none
OPERATIONS: dict[str, tuple[str, str]] = {
    "submit_job": ("submit", "submit"),
    "submit_batch": ("submit_batch", "submit-batch"),
    "submit_array": ("submit_array", "submit"),
    "list_jobs": ("jobs", "jobs"),
    "get_job": ("job", "job"),
    "edit_job": ("edit", "set"),
    "cancel_job": ("cancel", "cancel"),
    "cancel_batch": ("cancel_many", "cancel"),
    "pause_job": ("pause", "pause"),
    "resume_job": ("resume", "resume"),
    "get_log": ("read_logs", "logs"),
    "list_events": ("events", "events"),
    "list_job_audit": ("audit", "audit"),
    "list_audit": ("audit", "audit"),
    "explain_job": ("explain", "explain"),
    "get_calibration": ("calibration", "calibration"),
    "preview_tier": ("preview_tier", "preview-tier"),
    "simulate": ("simulate", "what-if"),
    "replay_round": ("replay_round", "replay"),
    "follow_events": ("follow_events", "watch"),
    "list_tiers": ("tiers", "tiers list"),
    "get_tier": ("tier", "tiers show"),
    "put_tier": ("put_tier", "tiers set"),
    "get_usage": ("usage", "tiers usage"),
    "list_users": ("users", "users list"),
    "get_user": ("user", "users show"),
    "put_user": ("put_user", "users set"),
    "create_token": ("create_token", "token create"),
    "list_tokens": ("tokens", "token list"),
    "revoke_token": ("revoke_token", "token revoke"),
    "list_nodes": ("nodes", "nodes"),
    "get_node": ("node", "node show"),
    "cordon_node": ("cordon", "node cordon"),
    "uncordon_node": ("uncordon", "node uncordon"),
    "drain_node": ("drain", "node drain"),
    "get_operation": ("operation", "operation"),
    "get_summary": ("summary", "summary"),
    "get_queue": ("queue", "queue"),
    "get_placements": ("placements", "placements"),
    "get_shares": ("shares", "shares"),
    "put_policy": ("set_policy", "policy"),
    "put_resource": ("set_resource", "resource set"),
    "delete_resource": ("delete_resource", "resource delete"),
    "put_resources": ("set_resources", "resource apply"),
    "get_allocation": ("allocations", "allocations"),
    "list_rounds": ("rounds", "rounds"),
    "get_round": ("round", "round"),
    "list_throughputs": ("throughputs", "[the command `throughputs` shows the estimator's, which hold these]"),
    "get_estimator": ("estimator", "throughputs"),
    "get_cluster": ("cluster", "cluster"),
    "list_catalogue": ("catalogue", "catalogue"),
    "list_policies": ("policies", "policies"),
    "healthz": ("is_alive", "health"),
    "readyz": ("health", "health"),
    "metrics": ("metrics", "metrics"),
}


def commands(group: Any, above: str = "") -> dict[str, Any]:
    """Every command by its words."""
    found: dict[str, Any] = {}
    for name, command in getattr(group, "commands", {}).items():
        found |= {above + name: command} | commands(command, f"{above}{name} ")
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.fixture(scope="module")
def published(service: Service) -> set[str]:
    description = service.client().get("/openapi.json").json()
    return {each["operationId"] for methods in description["paths"].values() for each in methods.values()}


def test_the_table_names_every_operation_that_is_published_and_no_other(published: set[str]) -> None:
    assert published - set(OPERATIONS) == set(), "say how the client and the command line reach these"
    assert set(OPERATIONS) - published == set()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_reached_by_the_client_and_by_a_command(operation: str) -> None:
    call, command = OPERATIONS[operation]
    assert isinstance(getattr(Client, call, None), Method | Listing), f"Client.{call}"
    assert command.startswith("[") or command in COMMANDS, f"gavel {command}"


def test_every_call_of_the_client_is_an_operation_or_made_of_some() -> None:
    """`logs` reads a part of the log at a time, `wait` looks at a job again and again."""
    calls = {name for name in dir(Client) if isinstance(getattr(Client, name), Method | Listing)}
    assert calls - {call for call, _ in OPERATIONS.values()} == {"logs", "wait"}


# Neither asks the service for anything, or what they print is no answer of its.
WITHOUT_JSON = {
    *("logs", "metrics", "profile", "replay", "serve", "demo", "version", "simulate", "export-trace"),
    *("db", "db backup", "db check", "db upgrade", "token", "node", "resource"),
}


def test_every_command_that_shows_an_answer_shows_it_as_json_too() -> None:
    without = {name for name, command in COMMANDS.items() if "--json" not in options_of(command)}
    assert without - WITHOUT_JSON == set()


def test_every_command_says_what_it_does() -> None:
    assert [name for name, command in COMMANDS.items() if not command.help] == []


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}
