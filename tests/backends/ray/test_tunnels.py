"""Ports of jobs on Ray without a cluster: which nodes are told of a request."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.nodes.code_packs import CodePacks
from gavel.backends.nodes.protocol import Order, ShardWanted
from gavel.backends.nodes.tunnel_carrier import TunnelCarrier
from gavel.backends.nodes.tunnel_requests import ask, withdraw
from gavel.backends.nodes.tunnels import TunnelFile, TunnelWanted
from gavel.backends.ray.bridge import Bridge


class Call:
    """A call of an actor that is made at once."""

    def __init__(self, call: Callable[[Any], None]) -> None:
        self.remote = call


class Agents:
    """Actors of nodes `n1`, `n2` and an older one, and what each was called with."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[str, ...]]] = {"n1": [], "n2": []}

    def agent(self, node_id: str) -> Any:
        if node_id not in self.calls:
            return object()
        made = type("Handle", (), {})()
        made.carry = Call(lambda own: self.calls[node_id].append(tuple(each.id for each in own)))
        return made


def wanted(name: str, job_id: str) -> TunnelWanted:
    return TunnelWanted(
        id=name, key="k", url="http://h", certificates="", job_id=job_id, generation=1, port=80, until_s=100.0
    )


def order(*jobs: str) -> Order:
    return Order(epoch=1, shards=tuple(ShardWanted(key=(job, 1), lease_node_boottime_s=0.0) for job in jobs))


def test_a_node_is_told_once_of_tunnels_to_gangs_that_it_has_a_part_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 nothing is wanted, 2 one tunnel, 3 the same, 4 another one, 5 both are withdrawn."""
    monkeypatch.setattr(TunnelFile, "EVERY_S", 0.0)
    agents = Agents()
    bridge = Bridge(agents, CodePacks(str(tmp_path), lambda body: None), (), Counter(), tmp_path)  # type: ignore[arg-type]
    orders = {"n1": order("j1", "j2"), "n2": order("j2"), "older": order("j1")}
    bridge._carry(orders)
    ask([tmp_path], wanted("a", "j1"), 0.0)
    bridge._carry(orders)
    bridge._carry(orders)
    assert agents.calls == {"n1": [("a",)], "n2": []}
    ask([tmp_path], wanted("b", "j2"), 0.0)
    bridge._carry(orders)
    assert agents.calls == {"n1": [("a",), ("a", "b")], "n2": [("b",)]}
    for name in ("a", "b"):
        withdraw([tmp_path], name, 0.0)
    bridge._carry(orders)
    bridge._carry(orders)
    assert agents.calls == {"n1": [("a",), ("a", "b"), ()], "n2": [("b",), ()]}


def test_closing_a_carrier_twice_does_no_harm(tmp_path: Path) -> None:
    with closing(TunnelCarrier(tmp_path)) as carrier:
        carrier.take(())
        carrier.close()
