"""What commands of operators for nodes and for the policy decide: whole outcomes are compared."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gavel.errors import Conflict, InvalidRequest, NotFound
from gavel.mechanism.commands import node_commands, policy_commands
from gavel.mechanism.commands.table import HANDLERS, apply_commands
from gavel.mechanism.tick import Outcome, Tick
from gavel.ports import Snapshot
from gavel.types import NodeState, NodeStatus, Observation, Operation, OperationState
from gavel.types.autopilot import AutopilotMode, AutopilotSetting
from tests.mechanism.test_reconcile import a_gang
from tests.mechanism.world import a_cluster_of_nodes
from tests.refusals import refused

NOW_S = 100.0
READY = NodeStatus(name="n0", since_s=50.0)
CORDONED = NodeStatus(name="n0", state=NodeState.CORDONED, is_cordoned=True, since_s=60.0, by="eve")
DRAINED = replace(CORDONED, state=NodeState.DRAINED, drain_by_s=70.0)


def a_tick(*nodes: NodeStatus, is_busy: bool = False, **over: Any) -> Tick:
    """Two nodes; with a gang on the first if it is busy."""
    gangs = (replace(a_gang(), worker_ids=("n0-0",)),) if is_busy else ()
    seen = Observation(observed_at_s=NOW_S, cluster=a_cluster_of_nodes(n0="fast", n1="fast"), gangs=gangs)
    tick = Tick.of(NOW_S, seen, Snapshot(version=1, jobs={}, tiers={}, **over))
    tick.nodes = {each.name: each for each in (*nodes, NodeStatus(name="n1"))}
    return tick


def asked(kind: str, subject: str = "node/n0", **body: Any) -> Operation:
    return Operation(id="o1", sequence=7, kind=kind, subject=subject, body=body, by="op", created_at_s=90.0)


def decided(tick: Tick, command: Operation) -> Outcome:
    return HANDLERS[command.kind](tick, command)


def shown(status: NodeStatus) -> dict[str, Any]:
    return {"node": "n0", "state": status.state.value, "drain_by_s": status.drain_by_s}


def outcome(before: NodeStatus, after: NodeStatus) -> Outcome:
    return Outcome(result=shown(after), nodes=(after,), before=shown(before), after=shown(after))


def test_a_node_is_cordoned_by_whoever_asked() -> None:
    after = replace(READY, state=NodeState.CORDONED, is_cordoned=True, since_s=NOW_S, by="op")
    assert decided(a_tick(READY), asked("node.cordon")) == outcome(READY, after)
    again = replace(CORDONED, by="op")
    assert decided(a_tick(CORDONED), asked("node.cordon")) == outcome(CORDONED, again)


def test_a_node_that_is_drained_is_not_cordoned_over() -> None:
    with refused(Conflict, "node n0 is drained; uncordon it first"):
        decided(a_tick(DRAINED), asked("node.cordon"))


@pytest.mark.parametrize("before", [CORDONED, DRAINED], ids=["a cordon", "a drain"])
def test_to_uncordon_a_node_ends_a_cordon_or_a_drain(before: NodeStatus) -> None:
    after = replace(READY, state=NodeState.READY, since_s=NOW_S, by="op")
    assert decided(a_tick(before), asked("node.uncordon")) == outcome(before, after)


@pytest.mark.parametrize("window_s", [0, 0.0, 5, 31_536_000.0])
def test_a_window_begins_when_the_command_was_acknowledged(window_s: float) -> None:
    drained: dict[str, Any] = {"is_cordoned": True, "drain_by_s": 90.0 + window_s, "since_s": NOW_S, "by": "op"}
    after = replace(READY, state=NodeState.DRAINED, **drained)
    assert decided(a_tick(READY), asked("node.drain", window_s=window_s)) == outcome(READY, after)
    busy = replace(after, state=NodeState.DRAINING)
    assert decided(a_tick(READY, is_busy=True), asked("node.drain", window_s=window_s)) == outcome(READY, busy)


def test_to_drain_again_moves_the_end_of_the_window() -> None:
    after = replace(DRAINED, drain_by_s=95.0, by="op")
    assert decided(a_tick(DRAINED), asked("node.drain", window_s=5)) == outcome(DRAINED, after)


@pytest.mark.parametrize(
    "body", [{}, {"window_s": "5"}, *({"window_s": s} for s in (-0.1, 31_536_000.1, float("nan")))]
)
def test_a_window_without_sense_is_refused(body: Mapping[str, Any]) -> None:
    why = "window_s: give the seconds until the node must be empty, 0 to 3.1536e+07"
    with refused(InvalidRequest, why):
        decided(a_tick(READY), asked("node.drain", **body))


@pytest.mark.parametrize("handler", [node_commands.cordon, node_commands.uncordon, node_commands.drain])
def test_a_node_that_is_not_there_is_refused_with_those_that_are(handler: Any) -> None:
    with refused(NotFound, "no node n7; there are n0, n1"):
        handler(a_tick(READY), asked("node.drain", "node/n7", window_s=5))


# --- the policy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AutopilotMode.OFF, AutopilotMode.ADVISE])
def test_a_policy_is_switched_and_the_autopilot_that_does_not_steer_stays_as_it_is(mode: AutopilotMode) -> None:
    tick = a_tick(policy="fifo", autopilot=AutopilotSetting(mode=mode))
    assert policy_commands.switch(tick, asked("policy.switch", "policy", policy="equal_share")) == Outcome(
        result={"policy": "equal_share"},
        policy="equal_share",
        before={"policy": "fifo"},
        after={"policy": "equal_share"},
    )


@pytest.mark.parametrize("mode", [AutopilotMode.AUTO, AutopilotMode.PIN])
def test_an_autopilot_that_steers_only_advises_once_a_person_has_set_a_policy(mode: AutopilotMode) -> None:
    setting = AutopilotSetting(mode=mode, goal="makespan", pinned="fifo")
    note = f"the autopilot was in mode {mode.value}; it advises from now on, so that this policy stays"
    tick = a_tick(policy="fifo", autopilot=setting)
    assert policy_commands.switch(tick, asked("policy.switch", "policy", policy="")) == Outcome(
        result={"policy": "", "note": note},
        policy="",
        autopilot=replace(setting, mode=AutopilotMode.ADVISE),
        before={"policy": "fifo", "autopilot": mode.value},
        after={"policy": "", "autopilot": "advise", "note": note},
    )


def test_a_policy_without_a_name_is_refused() -> None:
    with refused(InvalidRequest, "policy: give the name of a policy, or an empty text for that of the settings"):
        policy_commands.switch(a_tick(), asked("policy.switch", "policy", policy=3))


# --- the table --------------------------------------------------------------------------------------------------


def failed(command: Operation, kind: str, error: str, field: str = "") -> Operation:
    ended: dict[str, Any] = {"state": OperationState.FAILED, "finished_at_s": NOW_S}
    return replace(command, **ended, error=error, error_kind=kind, error_field=field)


def test_each_command_is_done_or_has_failed_with_its_error_and_the_next_one_is_applied() -> None:
    commands = (
        asked("node.explode"),
        asked("node.drain", window_s=-1),
        asked("node.cordon", "node/n7"),
        asked("node.cordon"),
    )
    tick = a_tick(READY, commands=commands)
    apply_commands(tick)
    kinds = (
        "autopilot.set, autopilot.switch, infeasible.clear, node.cordon, node.drain, node.uncordon, policy.switch,"
        " resources.set"
    )
    window = "give the seconds until the node must be empty, 0 to 3.1536e+07"
    done: dict[str, Any] = {"state": OperationState.DONE, "finished_at_s": NOW_S}
    assert tick.operations == [
        failed(commands[0], "InvalidRequest", f"this scheduler knows no node.explode; it knows {kinds}", "kind"),
        failed(commands[1], "InvalidRequest", window, "window_s"),
        failed(commands[2], "NotFound", "no node n7; there are n0, n1"),
        replace(commands[3], **done, result=shown(tick.nodes["n0"])),
    ]
    assert tick.nodes["n0"].state is NodeState.CORDONED
