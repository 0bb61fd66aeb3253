"""The live state of the service, and what the scheduler would decide on in a round that began now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gavel.composition import effective
from gavel.config import Settings
from gavel.estimator.reference_profiles import estimator_of
from gavel.mechanism.cluster import nodes
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.admission_holds import held
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.planning.problem import Matrix, as_known, problem_from, schedulable
from gavel.mechanism.planning.sharing import pair_rates
from gavel.ports import ApiStore, Snapshot, ThroughputEstimate, ThroughputEstimator
from gavel.types import AllocationProblem, Cluster, InfeasibleType, Job, NodeStatus, RoundRecord, Tier, Usage


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Live:
    """The state as the scheduler would read it now. `infeasible`: where jobs are known not to fit.

    `policy`: the composition in force, of the service with `settings`; empty: that of the settings.
    `last`: the newest round; None: none was decided yet.
    """

    jobs: Sequence[Job]
    tiers: Mapping[str, Tier]
    cluster: Cluster
    nodes: Mapping[str, NodeStatus]
    usage: Mapping[tuple[str, str], Usage]
    throughputs: Sequence[ThroughputEstimate]
    policy: str
    settings: Settings
    last: RoundRecord | None
    now_s: float
    infeasible: Sequence[InfeasibleType] = ()

    @property
    def in_force(self) -> Settings:
        """Return the settings by which the next round is decided."""
        return effective(self.settings, self.policy)


def live_of(store: ApiStore, snapshot: Snapshot, settings: Settings, now_s: float) -> Live:
    """Return the state on which the scheduler would decide now."""
    return Live(
        jobs=tuple(snapshot.jobs.values()),
        infeasible=tuple(snapshot.infeasible),
        tiers=snapshot.tiers,
        cluster=store.cluster(),
        nodes=snapshot.nodes,
        usage=snapshot.usage,
        throughputs=store.throughputs(),
        policy=snapshot.policy or settings.policy,
        settings=settings,
        last=snapshot.round_records[-1] if snapshot.round_records else None,
        now_s=now_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Undecided:
    """The jobs, cluster and problem of a round that would begin now, and the estimates behind it.

    Elastic jobs have the sizes and plans in force.
    """

    jobs: Sequence[Job]
    cluster: Cluster
    problem: AllocationProblem
    estimator: ThroughputEstimator


def undecided(live: Live) -> Undecided:
    """Return what the scheduler would decide on in a round that began now."""
    holds = held(live.jobs, tiers=live.tiers, usage=live.usage, now_s=live.now_s)
    estimator = estimator_of(live.throughputs)
    wanting = [job for job in schedulable(live.jobs, live.now_s) if job.id not in holds]
    jobs = [as_known(job, estimator) for job in ruled_out(wanting, live.infeasible)]
    cluster = nodes.usable(live.cluster, live.nodes)
    problem = problem_of_round(live, jobs, cluster, estimator, estimator.matrix)
    return Undecided(jobs=jobs, cluster=cluster, problem=problem, estimator=estimator)


def problem_of_round(
    live: Live, jobs: Sequence[Job], cluster: Cluster, estimator: ThroughputEstimator, matrix: Matrix
) -> AllocationProblem:
    """Return the problem of these jobs on this cluster, with the speeds of `matrix`."""
    return problem_from(
        jobs,
        feasibility=Feasibility(cluster),
        tiers=live.tiers,
        matrix=matrix,
        now_s=live.now_s,
        round_duration_s=live.in_force.round_duration_s,
        pair_rates=pair_rates(jobs, cluster, estimator, live.in_force),
        warm_start=live.last.allocation.warm_start if live.last else {},
    )
