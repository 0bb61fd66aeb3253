"""`gavel node` against a real server and a scheduler's thread."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.types import NodeState, NodeStatus, Operation, OperationState, Scope
from tests.api.conftest import NOW_S, Service, service
from tests.api.test_operations import a_scheduler
from tests.command_line import QuickShell

__all__ = ["service"]


@pytest.fixture
def shell(service: Service, tmp_path: Path) -> Iterator[QuickShell]:
    """An operator's shell, with a scheduler that does what it is asked."""
    status = NodeStatus(name="node-0", state=NodeState.DRAINING, since_s=NOW_S, is_cordoned=True, drain_by_s=NOW_S + 60)
    service.change(nodes=(replace(status, by="operator"),))

    def obey(command: Operation) -> Operation:
        return replace(command, state=OperationState.DONE, result=command.body, finished_at_s=NOW_S)

    with a_scheduler(service, obey):
        yield QuickShell(tmp_path, {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR)})


def test_nodes_are_listed_with_their_states(shell: QuickShell) -> None:
    (header, line) = shell.ok("node", "list").splitlines()
    assert header.split()[:3] == ["NODE", "STATE", "SINCE"]
    assert line.split()[:2] == ["node-0", "draining"] and "2 fast, 4 slow" in line


def test_a_node_is_drained_within_the_window_given(shell: QuickShell) -> None:
    assert "draining" in shell.ok("node", "drain", "node-0", "--window", "5")
    operation = json.loads(shell.ok("node", "drain", "node-0", "--window", "90", "--json"))
    assert (operation["kind"], operation["state"], operation["result"]) == ("node.drain", "done", {"window_s": 90.0})
    for what in ("cordon", "uncordon"):
        assert json.loads(shell.ok("node", what, "node-0", "--json"))["kind"] == f"node.{what}"


def test_a_node_that_is_not_there_is_refused_with_those_that_are(shell: QuickShell) -> None:
    done = shell.run("node", "drain", "nowhere")
    assert done.returncode == 2 and "node-0" in done.stderr
