"""Which nodes will go away, and for how long: at the rate and with the repair times of those that went."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from gavel.simulator.outcome import NodeOutage

REPAIR_S = 3600.0  # until a repair was seen
SHORTEST_S = 60.0  # an outage of a future


def seen(outages: Sequence[NodeOutage], now_s: float) -> tuple[NodeOutage, ...]:
    """Return the outages until now as anybody can know them: one that lasts has no end (+inf)."""
    begun = (each for each in outages if each.from_s <= now_s)
    return tuple(each if each.until_s <= now_s else replace(each, until_s=inf) for each in begun)


def between(outages: Sequence[NodeOutage], from_s: float, until_s: float) -> tuple[NodeOutage, ...]:
    """Return what was away in this time; one that lasts ends with it."""
    there = (each for each in outages if each.from_s < until_s and each.until_s > from_s)
    return tuple(replace(each, until_s=min(each.until_s, until_s)) for each in there)


def drawn(
    losses: Sequence[NodeOutage],
    nodes: Sequence[str],
    *,
    since_s: float,
    now_s: float,
    until_s: float,
    random: np.random.Generator,
) -> tuple[NodeOutage, ...]:
    """Return outages of `nodes` until `until_s`, as often for a node and hour as the `losses` seen since `since_s`.

    Repair times are drawn of those that were seen. A node that is away stays so for what is left of one.
    """
    if not losses or now_s <= since_s:
        return ()
    rate = len(losses) / (len(nodes) * (now_s - since_s))
    repairs_s = [each.until_s - each.from_s for each in losses if each.until_s < inf]
    away = {each.node: now_s - each.from_s for each in losses if each.until_s == inf}
    every = (_of_node(node, away.get(node), rate, repairs_s, now_s, until_s, random) for node in sorted(nodes))
    return tuple(outage for of_node in every for outage in of_node)


def _of_node(
    node: str,
    away_s: float | None,
    rate: float,
    repairs_s: Sequence[float],
    now_s: float,
    until_s: float,
    random: np.random.Generator,
) -> Iterator[NodeOutage]:
    at_s = now_s
    if away_s is not None:
        longer_s = [each - away_s for each in repairs_s if each > away_s]
        yield (first := _outage(node, now_s, longer_s or [max(away_s, SHORTEST_S)], random))
        at_s = first.until_s
    while (at_s := at_s + float(random.exponential(1 / rate))) < until_s:
        yield (following := _outage(node, at_s, repairs_s or [REPAIR_S], random))
        at_s = following.until_s


def _outage(node: str, at_s: float, lengths_s: Sequence[float], random: np.random.Generator) -> NodeOutage:
    length_s = max(SHORTEST_S, float(random.choice(np.array(lengths_s))))
    return NodeOutage(node=node, from_s=at_s, until_s=at_s + length_s)
