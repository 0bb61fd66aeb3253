"""A policy runner that solves in this process: for the simulator, for tests, and inside the runner's subprocess."""

from collections.abc import Callable
from dataclasses import replace

from gavel.errors import InvalidProblem, InvalidRequest, SolveFailed
from gavel.policies import registry
from gavel.policies._answers import accepted
from gavel.policies._reads import fields_read
from gavel.policies.programs.pairs import named_pairs, with_few_pairs
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem


class InlineRunner:
    """Runs policies in the calling process. `load` turns a policy's name with parameters into the policy."""

    def __init__(self, load: Callable[[str], Policy] = registry.load) -> None:
        self._load = load
        self._is_warm = False

    def warm(self) -> bool:
        """Import the solvers, which takes a second or two the first time; always True."""
        if not self._is_warm:
            from gavel.policies.programs.program import warm_up

            warm_up()
            self._is_warm = True
        return True

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """Return a checked allocation, whatever the policy does: raising anything else, or garbage, is SolveFailed.

        Raises InvalidProblem or InvalidRequest as the policy does, MemoryError, and KeyboardInterrupt, which is the
        user's. `time_limit_s` is not kept: nothing in the same process could end a solve. A policy's own limit holds.
        """
        try:
            chosen = self._load(policy)
            answer, reads = _answer(chosen, problem), fields_read(chosen, problem)
        except (InvalidRequest, SolveFailed, MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a policy may raise anything, SystemExit too
            raise SolveFailed(f"{policy} raised {type(error).__name__}: {error}") from error
        return replace(accepted(answer, problem, policy), reads=reads)

    def close(self) -> None:
        """Do nothing: no process was started."""


def _answer(policy: Policy, problem: AllocationProblem) -> Allocation:
    try:
        return policy.allocate(problem)
    except InvalidProblem as error:
        if problem.pair_rates is None or error.field != "pair_rates":
            raise
        return policy.allocate(named_pairs(with_few_pairs(problem)))  # most policies take pairs by name only
