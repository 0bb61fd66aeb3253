"""Policies: each states an objective over the valid allocations of a problem (docs/policies.md).

What a policy of your own needs is exported here (docs/adding-a-policy.md); cvxpy is imported only when it is used.
"""

from gavel.policies import measures
from gavel.policies.programs.pairs import named_pairs, with_pairs
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.programs.sizes import over_sizes
from gavel.policies.programs.variants import agnostic

__all__ = ["Program", "agnostic", "cvxpy", "measures", "named_pairs", "over_sizes", "with_pairs"]
