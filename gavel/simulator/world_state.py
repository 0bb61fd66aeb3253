"""The state of a lean simulation at the boundary of a round, from which another simulation can go on."""

from dataclasses import dataclass

from gavel.simulator.active import ActiveState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorldState:
    """The active jobs with their progress and their workers at `at_s`, before the round that starts then is planned.

    `jobs_seen` jobs have arrived so far, in `rounds` rounds. The last answer of the policy is not part of it: whoever
    goes on from here solves anew.
    """

    at_s: float
    active: ActiveState
    jobs_seen: int
    rounds: int
