"""Tiers share the cluster by weight and guarantee, tiers below tiers the same; each follows an objective of its own."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies._parameters import TierObjectives
from gavel.policies.fast.max_min import Stage, by_curves
from gavel.policies.fast.rearranged import rearranged_by_prices
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.pairs import named_pairs, with_few_pairs
from gavel.policies.programs.program import Program
from gavel.policies.programs.rearranged import rearranged
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.guarantees import guaranteed
from gavel.policies.tiers.objectives import OBJECTIVES, WITHIN_USER, reads_of
from gavel.policies.tiers.rearranging import is_rearranged, kept
from gavel.policies.tiers.tree import Node, tree
from gavel.types import Allocation, AllocationProblem, FloatArray, IntArray
from gavel.types.tier_objectives import PARAMETER, TIERED, in_force, read_objectives


@dataclass(frozen=True)
class Hierarchical:
    """lexicographically maximise the sorted sigma_k / W_k subject to sigma_k >= sigma0_k.

    sigma_k is the service of tier k: spread over its jobs by the tier's target curve, or, where there are tiers below
    it, over these, by the same rule as over the tiers at the top. W_k is its weight; sigma0_k what it reaches alone,
    along its curve, on its guaranteed fraction g_k of every type, tiers below it having theirs, which is part of its
    own. A job that cannot rise freezes and its tier's curve goes on over the others; what a tier cannot use flows on to
    its siblings, and what none of these can use, to those of the tier above. Tier and those below it hold at most `cap`
    of every type.

    Where the jobs of a user are to be fast (`within_user` of a fairness tier; the whole tier, if its objective is
    speed), that says what they have together. What each of them has maximises, over all such jobs,

        sum_i c_i a_i / max_j T_ij  subject to  q_G >= sigma_G for each user G, and q_i >= what it had for all others

    and for late jobs. c_i = w_i v_i s_i^(3/4), v by rank of the remaining time among the user's jobs
    (`tiers/rearranging.py`). So no user has less service for what another one, or another tier, does with its own.

    Example: one type, 6 workers, 1 step/s each, every gang 1, so service is workers and no job can use more than 1.
    gold (weight 2, fairness) has 4 jobs, bronze (weight 1, fifo) 3. Shares by weight are 4 and 2: gold's jobs get 1
    each, bronze's first two 1 each, its third 0. With only 2 jobs gold can use 2, and the 4 left go to bronze: all 3
    run. With a guarantee of 1/2 bronze has 3 at once (its three jobs), and each of gold's 4 jobs 3/4. An example with
    departments, teams and users is in docs/tiers.md.

    `objectives` are those of tiers whose own is `auto`, as gold:speed,free:fifo; for other tiers it says nothing.
    """

    objectives: TierObjectives = ""
    time_limit_s: float = 60.0

    name: ClassVar[str] = TIERED
    formula: ClassVar[str] = "lexicographically maximise the sorted sigma_k / W_k subject to sigma_k >= sigma0_k"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.3 (hierarchical policies), with an objective for each tier"
    choose_when: ClassVar[str] = (
        "Choose this when several teams share the cluster and each tier needs its own objective, guarantee and limits."
    )
    order_matters: ClassVar[bool] = True
    promises: ClassVar[frozenset[str]] = frozenset({"pareto"})

    def reads(self, problem: AllocationProblem) -> frozenset[str]:
        """Return the fields read: the tiers, and what the objectives of tiers with jobs depend on."""
        tiers = self._with_objectives(problem).tiers
        present = (tiers[index] for index in np.unique(problem.tier_of_job).tolist())
        valid = [tier for tier in present if tier.objective in OBJECTIVES and tier.within_user in WITHIN_USER]
        return frozenset({"tiers", "tier_of_job", "staying_workers"}).union(*map(reads_of, valid))

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem.

        InvalidProblem also for a tier's objective without a curve, and for tiers that no allocation can satisfy.
        """
        check_problem(problem, takes_pair_rates=True)
        problem = self._with_objectives(problem)
        root = tree(problem)
        goes_on = is_rearranged(problem, root)
        if not (goes_on or measures.is_alone(problem)):
            return self.program(with_few_pairs(problem))
        stages = [Stage(node.jobs, node.curve, part) for node, part in guaranteed(problem, root)]
        alone = measures.alone(problem)
        filled = by_curves(alone, self._text, stages, _caps(root))
        if filled is None:
            return self.program(with_few_pairs(problem))
        if not goes_on:
            return filled
        keeps = kept(problem, root, measures.service(alone, filled.time_fraction))
        answer = rearranged_by_prices(problem, keeps, filled.time_fraction, _caps(root), self._text)
        if answer is None:
            return self.program(with_few_pairs(problem))
        return replace(answer, warm_start=filled.warm_start)

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the linear programs that define the policy."""
        problem = self._with_objectives(problem)
        root = tree(problem)
        if not is_rearranged(problem, root):
            return self._filled(named_pairs(problem), root)
        alone = measures.alone(problem)
        filled = self._filled(alone, root)
        keeps = kept(problem, root, measures.service(alone, filled.time_fraction))
        left_s = max(1e-3, self.time_limit_s - filled.solve_time_s)
        program = Program(named_pairs(problem), solver="highs", time_limit_s=left_s, parts=_caps(root))
        return rearranged(program, keeps, self._text)

    def _filled(self, problem: AllocationProblem, root: Node) -> Allocation:
        """What the tiers' curves give, before jobs are rearranged."""
        program = Program(problem, solver="highs", time_limit_s=self.time_limit_s, parts=_caps(root))
        if program.is_idle:
            return program.allocation(self._text)
        filling = Filling(Stated(program))
        floors = np.zeros(len(problem.job_ids))
        for node, part in guaranteed(problem, root):
            own = np.zeros_like(floors)
            own[node.jobs] = floors[node.jobs]
            workers = part * problem.capacity_workers
            floors[node.jobs] = filling.fill(node.curve, start=own, workers=workers)[node.jobs]
        return program.allocation(self._text, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return service over weight of each tier at the top that has jobs, of its own or below, least first."""
        got = measures.service(problem, allocation.time_fraction)
        return np.sort([got[node.jobs].sum() / node.tier.weight for node in tree(self._with_objectives(problem)).below])

    @property
    def _text(self) -> str:
        """Whose its answers are: its name with the objectives, which forecasts read."""
        return f"{self.name}?{PARAMETER}={self.objectives}" if self.objectives else self.name

    def _with_objectives(self, problem: AllocationProblem) -> AllocationProblem:
        return replace(problem, tiers=in_force(problem.tiers, read_objectives(self.objectives)))


def _caps(root: Node) -> list[tuple[IntArray, float]]:
    return [(node.jobs, node.tier.cap) for node in root.from_below() if node.tier.cap < 1]


POLICY = Hierarchical
