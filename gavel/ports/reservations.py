"""What decides whether a session may have workers from an instant on; the store asks it when it stores the session."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gavel.types import Cluster, Job, JobSpec, RoundPlan, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitments:
    """What stands in the way of a reservation, as of one transaction.

    `jobs` are the unfinished ones that may not be preempted, without services; `plans` the newest rounds.
    `policy` is the composition that was put in force, empty: that of the settings.
    """

    now_s: float
    cluster: Cluster = field(default_factory=Cluster)
    tiers: Sequence[Tier] = ()
    jobs: Sequence[Job] = ()
    plans: Sequence[RoundPlan] = ()
    policy: str = ""


class ReservationRule(Protocol):
    """Decides reservations; it is a function of what it is given."""

    def accepted(self, spec: JobSpec, commitments: Commitments) -> JobSpec:
        """Return the specification with the accelerator type of its reservation. Raises InvalidRequest."""

    def check_extension(self, job: Job, longest_s: float, commitments: Commitments) -> None:
        """Raise InvalidRequest if a session that lasts so long would be in the way of a reservation."""
