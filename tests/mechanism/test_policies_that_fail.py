"""An operator's own policy that misbehaves costs the optimum, never the planning: by the driver and a real solver."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InvalidRequest, SolveFailed
from gavel.mechanism.planning.invariants import check_allocation
from gavel.mechanism.planning.problem import restricted, with_new_jobs
from gavel.policies import measures, registry
from gavel.policies.inline import InlineRunner
from gavel.runner import SubprocessRunner
from gavel.types import Allocation, AllocationProblem, RoundRecord
from tests.builders import a_cluster, a_problem
from tests.mechanism.world import World
from tests.policies.garbage import ANSWERS, GOOD, MISBEHAVIOUR, policy

PATIENCE_S = 60.0
SOLVE_LIMIT_S = 5.0
SLOW = ("raises: a hang", "raises: an end without a word", "raises: a crash")  # the solver's process is started again


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[SubprocessRunner]:
    """One solver process for all: what one policy does to it is not to be felt by the next."""
    runner = SubprocessRunner(4 << 30, policy_dir=folder)
    yield runner
    runner.close()


def write(folder: Path, text: str | None) -> None:
    file = folder / "mine.py"
    if text is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(text)


def warmed(runner: SubprocessRunner) -> None:
    gives_up_at_s = time.monotonic() + PATIENCE_S
    while not runner.warm():
        assert time.monotonic() < gives_up_at_s, "the solver's process did not get ready"
        time.sleep(0.01)


def decided(world: World, runner: SubprocessRunner) -> RoundRecord:
    """The next round, decided with the solver's process ready."""
    warmed(runner)
    before = newest(world)
    world.submit(100_000)  # a new job: the policy is asked anew
    world.run(lambda: newest(world) > before)
    return world.store.round()


def newest(world: World) -> int:
    """The index of the newest round."""
    rounds = world.store.rounds(limit=1)
    return rounds[0].round_index if rounds else 0


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.full if each in SLOW else ()) for each in MISBEHAVIOUR]
)
def test_it_is_a_failed_solve_that_says_why_and_a_repaired_policy_plans_the_next_round(
    name: str, folder: Path, runner: SubprocessRunner
) -> None:
    text, message = MISBEHAVIOUR[name]
    write(folder, GOOD)
    limits = {"solve_time_limit_s": SOLVE_LIMIT_S, "round_duration_s": 5 * SOLVE_LIMIT_S}
    world = World(cluster=a_cluster(fast=1, slow=1), runner=runner, policy="mine", **limits)
    assert decided(world, runner).solver_outcome == "solved"
    write(folder, text)
    first = decided(world, runner)
    why = first.allocation.fallback
    assert why is not None and message in why.error
    assert (why.policy, why.since_s, why.instead) == ("mine", first.problem.now_s, "last allocation kept")
    assert first.allocation.is_fallback and first.plan.leases, "planning goes on"
    second = decided(world, runner).allocation.fallback
    assert second is not None and second.since_s == why.since_s < world.clock.now_s()
    write(folder, GOOD)
    repaired = decided(world, runner)
    assert (repaired.solver_outcome, repaired.allocation.fallback) == ("solved", None)


class SolvesOnce(InlineRunner):
    """A runner whose first solve is its last."""

    def __init__(self) -> None:
        super().__init__()
        self._is_over = False

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        if self._is_over:
            raise SolveFailed("the solver's library has an error")
        self._is_over = True
        return super().allocate(policy, problem, time_limit_s)


def test_jobs_that_come_while_every_solve_fails_get_their_equal_share() -> None:
    world = World(cluster=a_cluster(fast=1), runner=SolvesOnce())
    first = world.submit(100_000)
    world.run(lambda: newest(world) >= 1)
    second, third = world.submit(100_000), world.submit(100_000)
    began = newest(world)
    world.run(lambda: newest(world) >= began + 31)
    assert world.store.round().solver_outcome.startswith("last allocation kept")
    held = [world.store.round(index).plan.leases[0].job_id for index in range(began + 1, began + 31)]
    assert all(9 <= held.count(job) <= 11 for job in (first, second, third)), held


@given(st.integers(1, 5), st.integers(0, 9), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_what_is_kept_and_what_new_jobs_get_is_an_allocation(kept: int, new: int, users: int, seed: int) -> None:
    """And the new jobs of a user have at most their equal shares, and the user's part of the cluster."""
    random = np.random.default_rng(seed)
    rates = random.choice([0.0, 1.0, 3.0], (kept + new, 2))
    sizes = random.integers(1, 4, kept + new)
    before = a_problem(rates[:kept], [4, 3], scale_factor=sizes[:kept])
    now = a_problem(rates, [4, 3], scale_factor=sizes)
    user_of = dict(zip(now.job_ids, random.integers(0, users, kept + new).tolist(), strict=True))
    last = registry.load("max_min_fairness").allocate(before)
    shared = registry.load("equal_share").allocate(now)
    answer = with_new_jobs(restricted(last, now), last, shared, user_of)
    check_allocation(answer)
    assert measures.violation(now, answer.time_fraction) <= 1e-9
    new_ones, whose = np.arange(kept + new) >= kept, np.array([*user_of.values()])
    assert (answer.time_fraction[kept:] <= shared.time_fraction[kept:] + 1e-12).all()
    there = {*whose[measures.runnable(now)].tolist()}
    for user in there:
        held = sizes @ np.where((new_ones & (whose == user))[:, None], answer.time_fraction, 0.0)
        assert (held <= now.capacity_workers / len(there) + 1e-9).all()


def test_a_user_of_many_new_jobs_leaves_the_others_their_parts() -> None:
    ids = tuple(f"j{index}" for index in range(10))
    now = a_problem([[1.0]] * 10, [1])
    last = registry.load("equal_share").allocate(a_problem([[1.0]], [1]))
    shared = registry.load("equal_share").allocate(now)
    answer = with_new_jobs(restricted(last, now), last, shared, {job: "ann" if job == "j0" else "bob" for job in ids})
    assert answer.time_fraction[0, 0] == pytest.approx(0.5)
    assert answer.time_fraction[1:, 0] == pytest.approx(0.5 / 9)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_simulator_s_runner_takes_garbage_for_a_failed_solve_too(name: str, tmp_path: Path) -> None:
    line, message = ANSWERS[name]
    write(tmp_path, policy(line))
    runner = InlineRunner(lambda spec: registry.load(spec, tmp_path))
    with pytest.raises(SolveFailed, match=f"^mine .*{message}"):
        runner.allocate("mine", a_problem([[1.0, 2.0], [2.0, 1.0]], [1, 1]), 1.0)


def test_a_bad_file_is_no_reason_to_refuse_other_policies(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "broken.py").write_text("def broken(:")
    assert registry.load("mine", tmp_path).name == "mine"
    assert registry.load("fifo", tmp_path).name == "fifo"
    with pytest.raises(InvalidRequest, match=r"broken.py raised SyntaxError"):
        registry.load("yours", tmp_path)


def test_a_changed_file_counts_from_the_next_solve(tmp_path: Path) -> None:
    write(tmp_path, policy("return None"))
    runner = InlineRunner(lambda spec: registry.load(spec, tmp_path))
    with pytest.raises(SolveFailed):
        runner.allocate("mine", a_problem([[1.0]], [1]), 1.0)
    write(tmp_path, GOOD)
    assert runner.allocate("mine", a_problem([[1.0]], [1]), 1.0).policy == "max_min_fairness"
