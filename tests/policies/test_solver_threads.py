"""Every solve in a process uses one thread.

HiGHS starts its threads once for the whole process, by default half as many as there are cores. From then on it refuses
each program that states another number: on a machine with more than two cores one solve that leaves the number open
would make all later ones fail.
"""

from typing import Any

import numpy as np
import pytest
from highspy import _Highs  # type: ignore[attr-defined]  # what all of its solvers inherit

from gavel.elastic.exact import best_whole
from gavel.elastic.problem import SizeProblem
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.policies.programs.elastic import relaxed
from gavel.types import PairRates
from tests.builders import a_problem


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads that each solve stated; 0: as many as the machine offers."""
    stated: list[int] = []
    run = _Highs.run

    def watched(solver: Any) -> Any:
        stated.append(solver.getOptionValue("threads")[1])
        return run(solver)

    monkeypatch.setattr(_Highs, "run", watched)
    return stated


def test_the_first_solve_of_a_process(threads: list[int]) -> None:
    InlineRunner().warm()
    assert threads and set(threads) == {1}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", [each.name for each in registry.available()])
def test_every_policy(name: str, is_packed: bool, threads: list[int]) -> None:
    rates = np.array([[4.0, 1.0], [3.0, 2.0], [1.0, 1.0], [2.0, 0.0]])
    colocated = PairRates(kind_of_job=np.arange(4), steps_per_s=np.minimum(rates[:, None], rates[None]) * 0.8)
    InlineRunner().allocate(name, a_problem(rates, [1, 1], pair_rates=colocated if is_packed else None), 60.0)
    assert set(threads) <= {1}


def test_the_choice_of_sizes(threads: list[int]) -> None:
    problem = SizeProblem(
        utility=np.random.default_rng(0).random((9, 2, 3)), sizes=np.array([1, 2, 4]), capacity_workers=np.array([5, 7])
    )
    relaxed(problem)
    best_whole(problem)
    assert threads and set(threads) == {1}
