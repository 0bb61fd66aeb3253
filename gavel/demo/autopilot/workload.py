"""The sets of tasks of the autopilot's demo: a workload that changes its nature twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KIND = "operator/task"  # of the replays; in the service each set has a user of its own, and a kind of this name
STEPS_PER_S = 100.0  # of a task on any worker, so that it may last a part of a second
PHASE_S = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """Tasks of one user that come together: how many, and for each its length in seconds and its part of the memory."""

    user: str
    arrives_s: float
    tasks: int
    task_s: float
    memory_fraction: float = 0.05

    @property
    def steps(self) -> int:
        """Return the steps of each task."""
        return round(self.task_s * STEPS_PER_S)


def sets() -> tuple[TaskSet, ...]:
    """Return all sets by their arrival. Of the three phases the middle one has a few long sets and many short ones.

    In the first all sets are alike. In the last they are alike, too, but every other one needs much memory.
    """
    alike = _every(6, 0.0, tasks=5, task_s=3.0)
    long = _every(2, PHASE_S, tasks=8, task_s=3.0)
    short = _every(9, PHASE_S + 1.0, tasks=2, task_s=1.5)
    light = _every(3, 2 * PHASE_S, tasks=4, task_s=3.0)
    heavy = _every(3, 2 * PHASE_S + 4.0, tasks=4, task_s=3.0, memory_fraction=0.4)
    ordered = sorted([*alike, *long, *short, *light, *heavy], key=lambda each: each[0])
    return tuple(
        TaskSet(user=f"set-{place:02d}", arrives_s=at_s, tasks=tasks, task_s=task_s, memory_fraction=memory)
        for place, (at_s, tasks, task_s, memory) in enumerate(ordered)
    )


def _every(
    count: int, from_s: float, *, tasks: int, task_s: float, memory_fraction: float = 0.05
) -> Iterable[tuple[float, int, float, float]]:
    """Yield (arrival, tasks, length of each, memory) of sets that come evenly within a phase."""
    for place in range(count):
        yield from_s + place * PHASE_S / count, tasks, task_s, memory_fraction


def phase_starts_s(of: Sequence[TaskSet]) -> tuple[float, ...]:
    """Return when each phase begins, of those in which a set comes."""
    return tuple(sorted({PHASE_S * (each.arrives_s // PHASE_S) for each in of}))
