"""A world that remembers each commit and each list of instructions, and whose store and solver may fail."""

from typing import Any

from gavel.errors import NotFound
from gavel.policies.inline import InlineRunner
from gavel.ports import Changes, Instruction
from gavel.store.memory import MemoryStore
from gavel.types import Allocation, AllocationProblem, Job, JobId, Tier
from tests.builders import a_cluster
from tests.mechanism.world import World


class Store(MemoryStore):
    """Keeps what was committed; refuses the next commit with `problem`, if there is one, and has no `purged` job."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Changes] = []
        self.problem: Exception | None = None
        self.purged: set[JobId] = set()
        self.put_tier(Tier(name="default", within_user="equal"), expected_version=1, by="test", now_s=0.0)

    def commit(self, expected_version: int, changes: Changes) -> int:
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        self.commits.append(changes)
        return super().commit(expected_version, changes)

    def job(self, job_id: JobId) -> Job:
        if job_id in self.purged:
            raise NotFound(f"no job {job_id}")
        return super().job(job_id)


class Runner(InlineRunner):
    """Counts how often it was closed; `is_ready` says whether its solver is there, `takes_s` how long a solve lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.is_ready, self.takes_s = 0, True, 0.0
        self.world: Recorded | None = None

    def warm(self) -> bool:
        return super().warm() and self.is_ready

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        if self.world and self.takes_s:
            self.world.clock.advance(self.takes_s)
        return super().allocate(policy, problem, time_limit_s)

    def close(self) -> None:
        self.closed += 1


class Recorded(World):
    """A world of two fast workers that remembers each commit and each list of instructions."""

    def __init__(self, **over: Any) -> None:
        self.kept, self.solver = Store(), Runner()
        super().__init__(store=self.kept, runner=self.solver, **{"cluster": a_cluster(fast=2), **over})
        self.solver.world = self

    def tick(self, at_s: float | None = None) -> tuple[float, list[Changes], list[Instruction]]:
        """Tick, at this instant; when the next is due, what was committed, and what was executed."""
        self.clock.wait(self.clock.now_s() if at_s is None else at_s)
        commits, executed = len(self.kept.commits), len(self.backend.executed)
        due_s = self.driver.tick()
        instructions = [each for batch in self.backend.executed[executed:] for each in batch]
        return due_s, self.kept.commits[commits:], instructions
