"""Policies: each states an objective over the valid allocations of a problem (docs/policies.md).

What a policy of your own needs is here (docs/adding-a-policy.md); nothing of it imports cvxpy before it is asked to.
"""

from gavel.policies import measures
from gavel.policies._pairs import named_pairs, with_pairs
from gavel.policies._program import Program, cvxpy
from gavel.policies._variants import agnostic

__all__ = ["Program", "agnostic", "cvxpy", "measures", "named_pairs", "with_pairs"]
