"""What a round decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gavel.types.allocation import Allocation, AllocationProblem, IntArray
from gavel.types.cluster import AcceleratorType, Cluster, WorkerId
from gavel.types.jobs import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of a gang to run on workers until an instant. A worker holds one lease, a job one token.

    `starts_at_s` None: with its round; later for a lease that was given in the middle of it.
    """

    job_id: JobId
    token: int
    combination: tuple[JobId, ...]
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]
    round_index: int
    expires_at_s: float
    is_profiling: bool = False
    starts_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """One round's leases. Immutable; executing it twice or late does no harm, since receivers refuse older tokens."""

    round_index: int
    parent_round_index: int
    starts_at_s: float
    duration_s: float
    leases: tuple[Lease, ...]
    policy: str
    allocation_digest: str

    @property
    def ends_at_s(self) -> float:
        """The instant at which the round's leases end."""
        return self.starts_at_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundInputs:
    """What the leases of a round were chosen from beside problem, allocation and the ledger of the round before.

    `policy` is the one that was asked, with its parameters; `cluster` what of it could be given; `parent` the plan of
    the round before as it was then; `kept` the leases that went on before anything was planned.
    """

    policy: str
    cluster: Cluster
    parent: RoundPlan | None
    kept: tuple[Lease, ...]
    kinds: tuple[str, ...]
    kind_of_job: IntArray  # (n,) index into kinds
    token: IntArray  # (n,)
    is_leased: IntArray  # (n,) 1 for a job that had a gang
    to_profile: tuple[tuple[JobId, AcceleratorType], ...]
    profiling_workers_fraction: float
    planner: Literal["owed", "published", "published_shuffled"]
    is_new_allocation: bool
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    minimum_run_s: float = 0.0
    started_at_s: Mapping[JobId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundRecord:
    """A round as kept, with all to decide it again. `owed_rounds`: rounds promised minus planned, this one included.

    With the published planner it holds the rounds received since the last solve instead. `switch_cost_s`: what a move
    was measured to cost, by job kind. `inputs` None: the round is older than they are kept.
    """

    plan: RoundPlan
    problem: AllocationProblem
    allocation: Allocation
    owed_rounds: Mapping[tuple[JobId, AcceleratorType], float] = field(default_factory=dict)
    solver_outcome: str = "solved"
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    inputs: RoundInputs | None = None

    def most_owed(self) -> dict[JobId, float]:
        """Rounds owed to each job on the type that owes it most: of those that wait, who is owed more comes first."""
        owed: dict[JobId, float] = {}
        for (job_id, _), rounds in self.owed_rounds.items():
            owed[job_id] = max(owed.get(job_id, 0.0), round(rounds, 6))  # equal ones stay in order of arrival
        return owed


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralResource:
    """A named, leased capacity on a node (ESCHER, SoCC '22, section 4); key (owner, name, node)."""

    name: str
    node: str
    capacity: int
    owner: str
    lease_expires_at_s: float
    generation: int
