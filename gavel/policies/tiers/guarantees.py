"""Which part of the shared workers each tier can always reach, beside gangs that no policy moves.

A guarantee g is a fraction of all workers of a type, those that stay with such gangs included: of T workers a tier
whose own gangs stay on h is still due g T - h of those that are shared. A tier above others is due at least what
these are.
"""

from collections.abc import Mapping

import numpy as np

from gavel.policies.tiers.tree import Node
from gavel.types import AllocationProblem, FloatArray, chain_of


def guaranteed(problem: AllocationProblem, root: Node) -> list[tuple[Node, FloatArray]]:
    """Return the nodes that are guaranteed workers, each after those under it, with that part (m,) of each type.

    The last is `root` with all of the problem's workers. Where gangs that stay leave too few, all parts shrink alike.
    """
    shared = problem.capacity_workers.astype(np.float64)
    due = _due(root, _held(problem), shared)
    parts = _given(root, shared, due)
    whole = np.maximum(1.0, shared)
    return [(node, parts[node] / whole) for node in root.from_below() if node in parts]


def _held(problem: AllocationProblem) -> Mapping[str, FloatArray]:
    """The workers that stay with gangs of each tier and of those below it, (m,); without such gangs none is named."""
    held: dict[str, FloatArray] = {}
    tiers = {tier.name: tier for tier in problem.tiers}
    for tier, workers in zip(problem.tiers, problem.staying_workers, strict=False):
        if workers.any():
            for name in (*chain_of(tier.name, tiers), ""):
                held[name] = held.get(name, 0.0) + workers
    return held


def _due(root: Node, held: Mapping[str, FloatArray], shared: FloatArray) -> dict[Node, FloatArray]:
    """The workers (m,) that each node is due of those that are shared."""
    nothing = np.zeros_like(shared)
    every = shared + held.get("", nothing)
    due: dict[Node, FloatArray] = {}
    for node in root.from_below():
        own = node.tier.guarantee * every - held.get(node.tier.name, nothing) if node.tier.guarantee > 0 else nothing
        below = np.sum([due[each] for each in node.below], axis=0) if node.below else nothing
        due[node] = np.maximum(0.0, np.maximum(own, below))
    return due


def _given(node: Node, workers: FloatArray, due: Mapping[Node, FloatArray]) -> dict[Node, FloatArray]:
    """What the node, and each under it with a guarantee, has of the `workers` (m,)."""
    below = [each for each in node.below if each.tier.guarantee > 0]
    wanted = np.sum([due[each] for each in below], axis=0) if below else np.zeros_like(workers)
    fit = np.divide(workers, wanted, out=np.ones_like(workers), where=wanted > workers)
    given = {node: workers}
    for each in below:
        given |= _given(each, fit * due[each], due)
    return given
