"""I2: a gang has exactly as many workers as its job may have, all of one type; in the plans and on the nodes.

The job's record has the size and the execution plan that its gang runs with.
"""

from collections import Counter
from collections.abc import Iterable

from gavel.backends.gang import GangKey
from gavel.backends.several.names import inner, region_of
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.faults.shard import SimulatedShard
from gavel.types import AcceleratorType, JobState, Lease, WorkerId, type_in_region
from gavel.types.environment import PLAN


class WholeGangs(Invariant):
    """A gang is whole or absent."""

    name = "I2_whole_gangs"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check every lease of the round that was planned, or amended."""
        plans = (commit.changes.round.plan if commit.changes.round else None, commit.changes.amended)
        self._check(evidence, (lease for plan in plans if plan is not None for lease in plan.leases))

    def _check(self, evidence: Evidence, leases: Iterable[Lease]) -> None:
        for lease in leases:
            sizes = evidence.store.job(lease.job_id).spec.possible_sizes
            types = {_type_of(worker) for worker in lease.worker_ids}
            if len(set(lease.worker_ids)) not in sizes or types != {lease.accelerator_type}:
                raise self.fail(f"job {lease.job_id} may have {sizes} workers and was given {lease.worker_ids}")

    def after_change(self, evidence: Evidence) -> None:
        """Check that no rank runs twice, and no part of a gang is started again once it has ended."""
        ranks: Counter[tuple[GangKey, int]] = Counter()
        for _, shard in evidence.running():
            self._check_record(evidence, shard)
            ranks.update((shard.launch.key, rank) for rank in shard.launch.ranks)
            if len(shard.launch.instruction.worker_ids) != len(shard.launch.node_of_rank):
                raise self.fail(f"gang {shard.launch.key} was divided among {shard.launch.node_of_rank}")
        for node in evidence.nodes:
            again = [key for key, count in node.starts.items() if count > 1]
            if again:
                raise self.fail(f"{node.name} has started {again} again")
        for (key, rank), count in ranks.items():
            if count > 1:
                raise self.fail(f"rank {rank} of gang {key} runs {count} times")

    def _check_record(self, evidence: Evidence, shard: SimulatedShard) -> None:
        job_id, generation = shard.launch.key
        job, launched = evidence.jobs.get(job_id), shard.launch.instruction
        if job is None or job.generation != generation or job.state is not JobState.LEASED:
            return  # the job's next gang, after one that was lost, may have another size before the lost one has ended
        runs, stored = (len(launched.worker_ids), launched.env.get(PLAN, "")), (job.spec.scale_factor, job.spec.plan)
        if runs != stored:
            raise self.fail(f"gang {shard.launch.key} runs with size and plan {runs}, and its job has {stored}")


def _type_of(worker: WorkerId) -> AcceleratorType:
    """The accelerator type of a worker, by its name: `fast-3`, or `fast-3@east` of one of several regions."""
    kind, region = inner(worker).rpartition("-")[0], region_of(worker)
    return type_in_region(kind, region) if region else kind
