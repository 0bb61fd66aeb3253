"""Rounds: leases, plans, their inputs and their records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

from gavel.types.allocation import Allocation, AllocationProblem, BoolArray, IntArray
from gavel.types.cluster import AcceleratorType, Cluster, WorkerId
from gavel.types.jobs import Job, JobId, JobState
from gavel.types.needs import NO_NEEDS, Needs, Used

Planner = Literal["lag", "published", "published_shuffled"]
"""How a round's gangs are chosen: by their lags, or as published (docs/rounds.md)."""

LOST_MARGIN_S = 1.0  # after a lease and its grace: the clocks of two machines drift apart


def gone_by_s(lease_end_s: float, grace_s: float) -> float:
    """Return the instant from which on no gang runs whose lease ended at `lease_end_s`, with a grace of `grace_s`."""
    return lease_end_s + grace_s + LOST_MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of a gang to run on workers until an instant. A worker holds one lease, a job one generation.

    `starts_at_s` None: with its round; set for a lease that was given in the middle of the round. `plan` is the
    execution plan of the gang, "": its job has none.
    """

    job_id: JobId
    generation: int
    combination: tuple[JobId, ...]
    accelerator_type: AcceleratorType
    worker_ids: tuple[WorkerId, ...]
    round_index: int
    expires_at_s: float
    is_profiling: bool = False
    starts_at_s: float | None = None
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The leases of one round. Carried out twice or late a plan does no harm: receivers refuse older generations."""

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
class PlannedJobs:
    """The fields of n jobs of k kinds that a plan needs, in the order of the round's problem."""

    kinds: tuple[str, ...]  # (k,)
    kind_of_job: IntArray  # (n,) index into kinds
    generation: IntArray  # (n,) of the newest gang that was launched, 0: none yet
    is_leased: BoolArray  # (n,) True for a job that has a gang
    needs: tuple[Needs, ...] = ()  # (q,) different ones; (): no job needs more than workers
    needs_of_job: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # (n,) index into needs

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Self:
        """Return the columns of `jobs`."""
        row_of: dict[str, int] = {}
        kind_of_job = [row_of.setdefault(job.spec.kind, len(row_of)) for job in jobs]
        needs = [job.spec.needs for job in jobs]
        different = tuple(dict.fromkeys(needs))
        if different in ((), (NO_NEEDS,)):
            different, needs = (), []
        index_of = {each: index for index, each in enumerate(different)}
        return cls(
            needs=different,
            needs_of_job=np.array([index_of[each] for each in needs], dtype=np.int64),
            kinds=tuple(row_of),
            kind_of_job=np.array(kind_of_job, dtype=np.int64),
            generation=np.array([job.generation for job in jobs], dtype=np.int64),
            is_leased=np.array([job.state is JobState.LEASED for job in jobs], dtype=np.bool_),
        )

    def needs_of_rows(self) -> tuple[Needs, ...]:
        """Return what the ranks of each job need, (n,); () if no job needs more than workers."""
        return tuple([self.needs[index] for index in self.needs_of_job.tolist()]) if self.needs else ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanInputs:
    """What a round's leases are planned from, in addition to its problem, its allocation and the ledger before it.

    It is built once (mechanism/planning/decision.py), given to `plan_round`, stored with the round as it is,
    and given to `plan_round` again when the round is verified. A new input is a new field here, set there.

    `policy` is the one that was asked, with its parameters; `cluster` the part of the cluster that could be given;
    `parent` the plan of the round before as it was then; `kept` the leases that went on before anything was planned;
    `used` is what `kept` holds of each node, empty while no job needs more than workers; `to_profile` the (job,
    accelerator type) pairs that nobody has measured yet. `switch_cost_s` is what a gang of a job kind loses by a move,
    in seconds, `""`: of any other kind. A gang that was started less than `minimum_run_s` before
    the round stays; `started_at_s` says when those that run now were started. The gangs of `starting` stay as well:
    they have not trained for long enough to keep it (mechanism/planning/starting.py). `plan_on` names the execution
    plan that a job would have on each accelerator type, by job; jobs without plans are left out. `late` names jobs far
    behind their isolated share that have a place first, and on which type (mechanism/planning/behind.py). `guests` are
    the leases of trainings that the plan gave nothing, each beside a session of `kept` (mechanism/planning/guests.py).
    """

    policy: str
    cluster: Cluster
    jobs: PlannedJobs
    parent: RoundPlan | None
    starts_at_s: float
    duration_s: float
    kept: tuple[Lease, ...] = ()
    used: Mapping[str, Used] = field(default_factory=dict)
    to_profile: tuple[tuple[JobId, AcceleratorType], ...] = ()
    profiling_workers_fraction: float = 0.5
    planner: Planner = "lag"
    is_new_allocation: bool = True
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    minimum_run_s: float = 0.0
    started_at_s: Mapping[JobId, float] = field(default_factory=dict)
    starting: tuple[JobId, ...] = ()
    plan_on: Mapping[JobId, Mapping[AcceleratorType, str]] = field(default_factory=dict)
    late: tuple[tuple[JobId, AcceleratorType], ...] = ()
    guests: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundRecord:
    """A stored round, with all that is needed to decide it again. `lag_rounds`: the lags after this round.

    With the published planner `lag_rounds` holds the rounds received since the last solve instead. `switch_cost_s`:
    what a move was measured to cost, by job kind. `unreported_s`: how long gangs of each user have held workers without
    a report, in seconds of the whole cluster (mechanism/planning/start_budget.py). `inputs` None: they were stored in
    an older form, or not at all.
    """

    plan: RoundPlan
    problem: AllocationProblem
    allocation: Allocation
    lag_rounds: Mapping[tuple[JobId, AcceleratorType], float] = field(default_factory=dict)
    solver_outcome: str = "solved"
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    unreported_s: Mapping[str, float] = field(default_factory=dict)
    inputs: PlanInputs | None = None

    def lasts_s(self, until_s: float) -> float:
        """Return the seconds from when the round was planned until then: both are by one clock, whoever planned it."""
        return until_s - self.problem.now_s


def may_run_s_of(records: Iterable[RoundRecord]) -> dict[tuple[JobId, int], float]:
    """Return how many seconds at most the gang of each stored lease may run from now on, by job and generation.

    That is as many as it had from when its round was planned, whoever planned it, and whatever clocks say.
    """
    may_run_s: dict[tuple[JobId, int], float] = {}
    for record in records:
        for lease in record.plan.leases:
            key, lasts_s = (lease.job_id, lease.generation), record.lasts_s(lease.expires_at_s)
            may_run_s[key] = max(lasts_s, may_run_s.get(key, 0.0))
    return may_run_s


def largest_lag(lag_rounds: Mapping[tuple[JobId, AcceleratorType], float]) -> dict[JobId, float]:
    """Return each job's largest lag in rounds, at least 0; rounded, so that equal ones stay in order of arrival."""
    lag: dict[JobId, float] = {}
    for (job_id, _), rounds in lag_rounds.items():
        if rounds > lag.get(job_id, 0.0):
            lag[job_id] = rounds
    return {job_id: round(rounds, 6) for job_id, rounds in lag.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralResource:
    """A named, leased capacity on a node (ESCHER, SoCC '22, section 4); key (owner, name, node)."""

    name: str
    node: str
    capacity: int
    owner: str
    lease_expires_at_s: float
    generation: int
