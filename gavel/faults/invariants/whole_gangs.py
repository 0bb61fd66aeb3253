"""I2: a gang has exactly as many workers as its job needs, all of one type; in the plans and on the nodes."""

from collections import Counter
from collections.abc import Iterable

from gavel.backends.gang import GangKey
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.types import Lease


class WholeGangs(Invariant):
    """A gang is whole or absent."""

    name = "I2_whole_gangs"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check every lease of the round that was planned, or amended."""
        plans = (commit.changes.round.plan if commit.changes.round else None, commit.changes.amended)
        self._check(evidence, (lease for plan in plans if plan is not None for lease in plan.leases))

    def _check(self, evidence: Evidence, leases: Iterable[Lease]) -> None:
        for lease in leases:
            size = evidence.store.job(lease.job_id).spec.scale_factor
            types = {worker.rpartition("-")[0] for worker in lease.worker_ids}
            if len(set(lease.worker_ids)) != size or types != {lease.accelerator_type}:
                raise self.fail(f"job {lease.job_id} needs {size} workers and was given {lease.worker_ids}")

    def after_change(self, evidence: Evidence) -> None:
        """Check that no rank runs twice, and no part of a gang is started again once it has ended."""
        ranks: Counter[tuple[GangKey, int]] = Counter()
        for _, shard in evidence.running():
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
