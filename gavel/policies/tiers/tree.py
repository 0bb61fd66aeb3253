"""The tree of tiers: who is below whom, which jobs each has, and how its service is spread over them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies.tiers.curves import Curve, Share
from gavel.policies.tiers.objectives import OBJECTIVES, WITHIN_USER
from gavel.types import AllocationProblem, IntArray, Tier

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A tier that has jobs, of its own or below: the rows of all these, and how its service is spread over them."""

    tier: Tier
    jobs: IntArray
    curve: Curve
    below: tuple["Node", ...] = ()

    def from_below(self) -> Iterator["Node"]:
        """The nodes under this one, each after those under it, and this one last."""
        for node in self.below:
            yield from node.from_below()
        yield self


def tree(problem: AllocationProblem) -> Node:
    """The whole cluster as a nameless tier above all; InvalidProblem for tiers that no allocation can satisfy.

    Tiers without jobs, of their own or below, are left out, and promised nothing.
    """
    rows = [np.flatnonzero(problem.tier_of_job == index) for index in range(len(problem.tiers))]
    jobs_of = {tier.name: jobs for tier, jobs in zip(problem.tiers, rows, strict=True)}
    if len(jobs_of) < len(problem.tiers):
        names = [tier.name for tier in problem.tiers]
        raise InvalidProblem("tiers", f"two tiers are named {max(names, key=names.count)}; give each its own name")
    present = _present(problem.tiers, jobs_of)
    for tier in present:
        _check(tier)
    return _node(problem, Tier(name="", guarantee=1.0), present, jobs_of, 1.0)


def _present(tiers: Sequence[Tier], jobs_of: dict[str, IntArray]) -> list[Tier]:
    """Tiers that have jobs, and all above them."""
    named = {tier.name: tier for tier in tiers}
    kept: set[str] = set()
    for tier in tiers:
        if len(jobs_of[tier.name]):
            kept.update(_chain(tier, named))
    return [tier for tier in tiers if tier.name in kept]


def _chain(tier: Tier, named: dict[str, Tier]) -> list[str]:
    """The tier and those above it; InvalidProblem where they lead nowhere or round."""
    chain = [tier.name]
    while tier.parent is not None:
        if tier.parent in chain:
            raise InvalidProblem(f"tiers[{tier.name}].parent", f"is {tier.parent}, which is below it; give one above")
        if tier.parent not in named:
            raise InvalidProblem(f"tiers[{tier.name}].parent", f"is {tier.parent}, which is no tier; give one that is")
        tier = named[tier.parent]
        chain.append(tier.name)
    return chain


def _node(
    problem: AllocationProblem, tier: Tier, present: list[Tier], jobs_of: dict[str, IntArray], share: float
) -> Node:
    """The node of `tier`, which has the part `share` of the cluster by weights."""
    own = jobs_of.get(tier.name, np.zeros(0, dtype=np.int64))
    children = [each for each in present if each.parent == (tier.name or None)]
    if children and len(own):  # jobs of a tier that has others below are one more of these
        children.append(replace(tier, weight=1.0, guarantee=0.0, cap=1.0))
    _check_promised(tier, children)
    if not children:
        return Node(tier, own, OBJECTIVES[tier.objective].curve(problem, tier, own, share))
    weights = [each.weight for each in children]
    nodes = tuple(
        _node(problem, each, [] if each.name == tier.name else present, jobs_of, share * each.weight / sum(weights))
        for each in children
    )
    jobs = np.concatenate([node.jobs for node in nodes])
    return Node(tier, jobs, Share([node.curve for node in nodes], weights), nodes)


def _check(tier: Tier) -> None:
    if tier.objective not in OBJECTIVES:
        choices = ", ".join(OBJECTIVES)
        raise InvalidProblem(f"tiers[{tier.name}].objective", f"is {tier.objective}; give one of {choices}")
    if tier.within_user not in WITHIN_USER:
        choices = ", ".join(WITHIN_USER)
        raise InvalidProblem(f"tiers[{tier.name}].within_user", f"is {tier.within_user}; give one of {choices}")
    if not (math.isfinite(tier.weight) and tier.weight > 0):
        raise InvalidProblem(f"tiers[{tier.name}].weight", f"is {tier.weight}; give a positive number")
    if not 0 <= tier.guarantee <= 1:
        raise InvalidProblem(f"tiers[{tier.name}].guarantee", f"is {tier.guarantee}; give a fraction in [0, 1]")
    if not tier.guarantee <= tier.cap <= 1:
        fix = f"give a fraction in [{tier.guarantee:g}, 1], not below its guarantee"
        raise InvalidProblem(f"tiers[{tier.name}].cap", f"is {tier.cap}; {fix}")


def _check_promised(tier: Tier, children: list[Tier]) -> None:
    guaranteed = sum(each.guarantee for each in children)
    if guaranteed > tier.guarantee + ROUNDING:
        names = ", ".join(each.name for each in children if each.guarantee)
        most = f"{tier.guarantee:g}, what {tier.name} above them has" if tier.name else "1"
        raise InvalidProblem("tiers.guarantee", f"sums to {guaranteed:g} over {names}; lower it to at most {most}")
