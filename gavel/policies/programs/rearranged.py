"""Jobs rearranged inside what they keep: the greatest total of claims times relative speeds (docs/tiers.md)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.tiers.rearranging import Kept
from gavel.types import Allocation, FloatArray, IntArray


def rearranged(program: Program, kept: Kept, policy: str) -> Allocation:
    """The valid allocation of the greatest total in which each job and each group has what is `kept`.

    Raises SolveFailed.
    """
    cp = cvxpy()

    gain = (kept.claim * measures.per_best_rate(program.given)) @ program.rates
    gain = gain / gain.max()
    service, least = _demands(program, kept)
    demand = service @ program.x >= least
    program.run(program.over_valid(cp.Maximize(gain @ program.x), [demand]))
    price = np.maximum(0.0, demand.dual_value)
    bound = program.bound(gain + service.T @ price) - float(price @ least)
    reached = float(gain @ program.x.value)
    return program.allocation(policy, dual_gap=max(0.0, bound - reached) / max(1.0, reached))


def _demands(program: Program, kept: Kept) -> tuple[Any, FloatArray]:
    """The service per unit of x of each job that keeps some and of each group, (d, v), and what each keeps, (d,)."""
    from scipy import sparse

    of_jobs = program.rates.multiply(program.service_per_step[:, None]).tocsr()
    asking = np.flatnonzero(kept.least)
    rows = sparse.vstack([of_jobs[asking], _members(kept.groups, len(kept.least)) @ of_jobs], format="csr")
    return rows, np.append(kept.least[asking], kept.together)


def _members(groups: Sequence[IntArray], jobs: int) -> Any:
    """Which jobs each group has, as a sparse matrix (g, n) of 0 and 1."""
    from scipy import sparse

    columns = np.concatenate(groups)
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(groups), jobs))
