"""Commands of operators for nodes: no new leases (cordon), no leases after a window (drain), normal use again."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest, NotFound, first_few
from gavel.mechanism.cluster import nodes
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import NodeStatus, Operation

WINDOW_MAX_S = 31_536_000.0


def cordon(tick: Tick, command: Operation) -> Outcome:
    """Give no new leases there; gangs there go on to the end of theirs. Raises Conflict if the node is drained now."""
    before = _status(tick, command)
    if before.drain_by_s is not None:
        raise Conflict(f"node {before.name} is {before.state}; uncordon it first")
    return _changed(tick, before, replace(before, is_cordoned=True, by=command.by))


def uncordon(tick: Tick, command: Operation) -> Outcome:
    """Give new leases there again, even during a drain; gangs that the drain has stopped are not started again."""
    before = _status(tick, command)
    return _changed(tick, before, replace(before, is_cordoned=False, drain_by_s=None, by=command.by))


def drain(tick: Tick, command: Operation) -> Outcome:
    """Let no lease there outlive the window, `window_s` of the body in seconds; draining again moves its end.

    Gangs leave at the end of their lease. Those of jobs that cannot be preempted stay until the window ends, and then
    checkpoint and stop as all that is left. Asked twice for one command, the window is the same.
    """
    before, window_s = _status(tick, command), _window_s(command.body)
    by_s = command.created_at_s + window_s
    return _changed(tick, before, replace(before, is_cordoned=True, drain_by_s=by_s, by=command.by))


def _status(tick: Tick, command: Operation) -> NodeStatus:
    name = command.subject.removeprefix("node/")
    if name not in tick.nodes:
        raise NotFound(f"no node {name}; there are {first_few(tick.nodes)}")
    return tick.nodes[name]


def _window_s(body: Mapping[str, Any]) -> float:
    window_s = body.get("window_s")
    if not isinstance(window_s, int | float) or not 0 <= window_s <= WINDOW_MAX_S or math.isnan(window_s):
        raise InvalidRequest("window_s", f"give the seconds until the node must be empty, 0 to {WINDOW_MAX_S:g}")
    return float(window_s)


def _changed(tick: Tick, before: NodeStatus, wanted: NodeStatus) -> Outcome:
    after = nodes.look(tick.nodes | {wanted.name: wanted}, tick.seen)[wanted.name]
    return Outcome(result=_shown(after), nodes=(after,), before=_shown(before), after=_shown(after))


def _shown(status: NodeStatus) -> dict[str, Any]:
    return {"node": status.name, "state": status.state.value, "drain_by_s": status.drain_by_s}
