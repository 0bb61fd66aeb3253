"""A policy runner that solves in this process: for the simulator, for tests, and inside the runner's subprocess."""

from collections.abc import Callable

from gavel.errors import InvalidProblem
from gavel.policies import registry
from gavel.policies._pairs import named_pairs
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem


class InlineRunner:
    """Runs policies where it stands. `load` turns a policy's name with parameters into the policy."""

    def __init__(self, load: Callable[[str], Policy] = registry.load) -> None:
        self._load = load
        self._is_warm = False

    def warm(self) -> bool:
        """Import the solvers, which takes a second or two the first time; always True."""
        if not self._is_warm:
            from gavel.policies._program import warm_up

            warm_up()
            self._is_warm = True
        return True

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """A checked allocation; raises SolveFailed, InvalidProblem, or InvalidRequest for an unknown policy.

        `time_limit_s` is not kept: nothing in the same process could end a solve. A policy's own limit still holds.
        """
        chosen = self._load(policy)
        try:
            return chosen.allocate(problem)
        except InvalidProblem as error:
            if problem.pair_rates is None or error.field != "pair_rates":
                raise
            return chosen.allocate(named_pairs(problem))  # most policies take pairs by name only

    def close(self) -> None:
        """Nothing was started."""
