"""What the history of a job says of its gangs: the sentence about a launch, and what follows from an event: how many
workers, and which execution plan.

The sentence is written and read here, so that the history needs no field besides it.
"""

import re
from collections.abc import Sequence

from gavel.mechanism.jobs.events import EventKind
from gavel.types import WorkerId

_LAUNCH = re.compile(r"The gang was launched on (.+) as number \d+, from step \d+(?:, under plan (.+))?\.")
_ENDS = frozenset(EventKind) - {EventKind.LAUNCHED}


def launch_message(worker_ids: Sequence[WorkerId], generation: int, from_step: int, plan: str = "") -> str:
    """Return the sentence about the launch of a gang; `plan` is its execution plan, "": none."""
    under = f", under plan {plan}" if plan else ""
    return f"The gang was launched on {', '.join(worker_ids)} as number {generation}, from step {from_step}{under}."


def workers_after(kind: str, message: str) -> int | None:
    """Return how many workers the gang of the job has from an event on; None if the event leaves it as it was."""
    if kind in _ENDS:
        return 0
    launch = _LAUNCH.fullmatch(message) if kind == EventKind.LAUNCHED else None
    return launch[1].count(", ") + 1 if launch else None


def plan_after(kind: str, message: str) -> str | None:
    """Return the execution plan of the gang that an event launches; None for another event, and without a plan."""
    launch = _LAUNCH.fullmatch(message) if kind == EventKind.LAUNCHED else None
    return launch[2] if launch else None
