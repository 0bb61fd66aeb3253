"""The line of a job that has ended in a lean simulation."""

from gavel.finish_time import finish_time_fairness
from gavel.mechanism.planning.problem import ClusterColumns
from gavel.simulator.active import Active
from gavel.simulator.report import JobResult
from gavel.types import JobState


def result_of(active: Active, row: int, at_s: float, cluster: ClusterColumns) -> JobResult:
    """Return the result of the job in this row, which ended at `at_s`."""
    job, types = active.jobs[row], cluster.accelerator_types
    rounds = zip(types, active.rounds_received[row], strict=True)
    return JobResult(
        id=active.ids[row],
        name=job.spec.name,
        user=job.spec.user,
        tier=job.spec.tier,
        kind=job.spec.kind,
        state=JobState.COMPLETED,
        jct_s=at_s - job.submitted_at_s,
        rho=finish_time_fairness(at_s - job.submitted_at_s, float(active.isolated_time_s[row])),
        rounds={name: int(count) for name, count in rounds if count > 0},
        preemptions=int(active.preemptions[row]),
        scale_factor=job.spec.scale_factor,
        submitted_at_s=job.submitted_at_s,
        finished_at_s=at_s,
        fastest_s=job.total_steps / active.fastest_rate_of(row),
        lost_s=float(active.lost_s[row]),
        packed_s=float(active.shared_s[row].sum()),
        cost_usd=float(active.cost_usd(cluster.price_usd_per_hour)[row]),
        deadline_at_s=job.spec.deadline_at_s,
    )
