"""Every operation of the service has a call of the client and a command, or a reason for having none."""

import re
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
    "submit_job": ("submit", "job submit"),
    "submit_batch": ("submit_batch", "job submit-batch"),
    "submit_array": ("submit_array", "job submit"),
    "get_code_limits": ("code_limits", "job submit"),
    "put_code_version": ("store_code", "job submit"),
    "put_code_chunks": ("store_code", "job submit"),
    "fetch_code": ("fetch_code", "job submit"),
    "put_code_diff": ("store_code", "job submit"),
    "get_code_diff": ("code_diff", "job diff"),
    "list_jobs": ("jobs", "job list"),
    "get_job": ("job", "job show"),
    "edit_job": ("edit", "job set"),
    "cancel_job": ("cancel", "job cancel"),
    "cancel_batch": ("cancel_many", "job cancel"),
    "pause_job": ("pause", "job pause"),
    "resume_job": ("resume", "job resume"),
    "extend_session": ("extend_session", "job extend"),
    "purge_job": ("purge", "job purge"),
    "resubmit_job": ("resubmit", "job resubmit"),
    "get_log": ("read_logs", "job logs"),
    "list_endpoints": ("endpoints", "job endpoints"),
    "list_scrape_targets": ("scrape_targets", "job endpoints"),
    "list_events": ("events", "job events"),
    "get_metrics": ("job_metrics", "job metrics"),
    "get_utilization": ("job_utilization", "job utilization"),
    "list_files": ("job_files", "job files"),
    "get_file": ("read_file", "job download"),
    "list_checkpoints": ("job_checkpoints", "job checkpoints"),
    "get_checkpoint": ("read_checkpoint", "job download"),
    "list_job_audit": ("audit", "audit"),
    "list_audit": ("audit", "audit"),
    "explain_job": ("explain", "job explain"),
    "get_calibration": ("calibration", "calibration"),
    "preview_tier": ("preview_tier", "tier preview"),
    "what_if": ("what_if", "what-if"),
    "verify_round": ("verify_round", "round verify"),
    "watch": ("watch", "watch"),
    "list_tiers": ("tiers", "tier list"),
    "get_tier": ("tier", "tier show"),
    "put_tier": ("put_tier", "tier set"),
    "get_usage": ("usage", "tier usage"),
    "list_users": ("users", "user list"),
    "get_user": ("user", "user show"),
    "put_user": ("put_user", "user set"),
    "get_user_link": ("user_link", "user link"),
    "link_user": ("link_user", "user link"),
    "unlink_user": ("unlink_user", "user unlink"),
    "create_token": ("create_token", "token create"),
    "list_tokens": ("tokens", "token list"),
    "revoke_token": ("revoke_token", "token revoke"),
    "list_secrets": ("secrets", "secret list"),
    "put_secret": ("put_secret", "secret set"),
    "delete_secret": ("delete_secret", "secret delete"),
    "get_notification_settings": ("notification_settings", "notification show"),
    "put_notification_settings": ("put_notification_settings", "notification set"),
    "get_user_notification_settings": ("notification_settings", "notification show"),
    "put_user_notification_settings": ("put_notification_settings", "notification set"),
    "list_notifications": ("notifications", "notification list"),
    "test_notifications": ("test_notifications", "notification test"),
    "list_nodes": ("nodes", "node list"),
    "get_node": ("node", "node show"),
    "cordon_node": ("cordon", "node cordon"),
    "uncordon_node": ("uncordon", "node uncordon"),
    "drain_node": ("drain", "node drain"),
    "get_operation": ("operation", "operation show"),
    "list_reservations": ("reservations", "reservations"),
    "list_infeasible_types": ("infeasible_types", "infeasible list"),
    "clear_infeasible_type": ("clear_infeasible_type", "infeasible clear"),
    "get_summary": ("summary", "summary"),
    "get_queue": ("queue", "queue"),
    "get_placements": ("placements", "placements"),
    "get_shares": ("shares", "shares"),
    "put_policy": ("set_policy", "policy set"),
    "get_autopilot": ("autopilot", "autopilot status"),
    "put_autopilot": ("set_autopilot", "autopilot set"),
    "list_autopilot_decisions": ("autopilot_decisions", "autopilot history"),
    "get_autopilot_decision": ("autopilot_decision", "autopilot history"),
    "verify_autopilot_decision": ("verify_autopilot_decision", "autopilot verify"),
    "put_resource": ("set_resource", "resource set"),
    "delete_resource": ("delete_resource", "resource delete"),
    "put_resources": ("set_resources", "resource apply"),
    "get_allocation": ("allocations", "allocations"),
    "list_rounds": ("rounds", "round list"),
    "get_round": ("round", "round show"),
    "list_throughputs": ("throughputs", "throughputs"),
    "get_cluster": ("cluster", "cluster"),
    "list_catalogue": ("catalogue", "catalogue"),
    "list_policies": ("policies", "policy list"),
    "list_findings": ("findings", "doctor"),
    "healthz": ("is_alive", "health"),
    "readyz": ("health", "health"),
    "metrics": ("metrics", "metrics"),
}


def commands(group: Any, above: str = "") -> dict[str, Any]:
    """Every command by its words."""
    named: dict[str, Any] = {}
    for name, command in getattr(group, "commands", {}).items():
        named |= {above + name: command} | commands(command, f"{above}{name} ")
    return named


COMMANDS = commands(typer.main.get_command(app))
GROUPS = {name.rpartition(" ")[0] for name in COMMANDS} - {""}


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
    *("job logs", "job download", "download"),
    *("interactive", "attach", "port-forward", "kubernetes crd"),
    *(
        "metrics",
        "profile",
        "round verify",
        "serve",
        "demo",
        "version",
        "simulate",
        "export-trace",
        "export-metrics",
        "init",
        "run",
        "suite write",
    ),
    *("db backup", "db check", "db upgrade"),
}


def test_every_command_that_shows_an_answer_shows_it_as_json_too() -> None:
    without = {name for name, command in COMMANDS.items() if "--json" not in options_of(command)} - GROUPS
    assert without - WITHOUT_JSON == set()


def test_every_command_says_what_it_does() -> None:
    assert [name for name, command in COMMANDS.items() if not command.help] == []


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_a_group_is_a_singular_noun_and_only_groups_have_verbs() -> None:
    """`gavel tier set` and `gavel tier list`; never `tiers`, nor a second way to the same."""
    assert {name for name in GROUPS if name.endswith("s")} == {"kubernetes"}, "which is a name"
    plurals = {f"{name}s" for name in GROUPS} | {f"{name[:-1]}ies" for name in GROUPS}
    assert plurals.isdisjoint(COMMANDS)
    reached = [command for _, command in OPERATIONS.values() if not command.startswith("[")]
    assert {command for command in reached if command in GROUPS} == set()


VERBS = {
    "cancel",
    "extend",
    "pause",
    "resume",
    "purge",
    "resubmit",
    "cordon",
    "uncordon",
    "drain",
    "verify",
    "preview",
    "batch",
    "array",
    "what-if",
    "test",
    "fetch",
}


def test_a_path_is_a_plural_collection_a_name_in_it_and_perhaps_a_verb(service: Service) -> None:
    """A verb is a last part of its own, and is posted; nothing is behind a colon."""
    paths = service.client().get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        last = path.rpartition("/")[2]
        assert ":" not in path, path
        assert (last in VERBS) == (set(methods) == {"post"} and last not in ("jobs", "tokens", "code-diffs")), path
        before = re.findall(r"([^/]+)/\{", path)
        assert all(name.endswith("s") for name in before), path
