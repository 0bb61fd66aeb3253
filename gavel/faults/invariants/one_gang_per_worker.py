"""I1: a worker holds one gang, or one packed pair, in the plans and on the nodes; a port of a node has one gang."""

from collections import defaultdict
from itertools import combinations

from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.faults.shard import SimulatedShard
from gavel.types import Lease, RoundPlan


class OneGangPerWorker(Invariant):
    """No two gangs hold a worker at once."""

    name = "I1_one_gang_per_worker"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check the leases of the round that was planned, or amended."""
        for plan in (commit.changes.round.plan if commit.changes.round else None, commit.changes.amended):
            if plan is not None:
                self._check_plan(plan)

    def _check_plan(self, plan: RoundPlan) -> None:
        held: dict[str, list[Lease]] = defaultdict(list)
        for lease in plan.leases:
            for worker in lease.worker_ids:
                held[worker].append(lease)
        for worker, leases in held.items():
            for one, other in combinations(leases, 2):
                starts_s = [plan.starts_at_s if each.starts_at_s is None else each.starts_at_s for each in (one, other)]
                overlap = max(starts_s) < min(one.expires_at_s, other.expires_at_s)
                if overlap and one.combination != other.combination:
                    raise self.fail(f"round {plan.round_index} leases {worker} to {one.job_id} and {other.job_id}")

    def after_change(self, evidence: Evidence) -> None:
        """Check that no slot and no port of a node has the ranks of two gangs."""
        port_of: dict[tuple[str, int], SimulatedShard] = {}
        holders: dict[tuple[str, str, int], list[SimulatedShard]] = defaultdict(list)
        for node, shard in evidence.running():
            for port in shard.launch.ports:
                if port_of.setdefault((node.name, port), shard) is not shard:
                    raise self.fail(f"{node.name} runs {shard.launch.key} and another gang on port {port}")
            for slot in shard.launch.slots:
                there = holders[node.name, slot.resource, slot.index]
                for other in there:
                    if not _are_a_pair(other, shard):
                        gangs = f"{other.launch.key} and {shard.launch.key}"
                        raise self.fail(f"{node.name} runs {gangs} on slot {slot.index}")
                there.append(shard)


def _are_a_pair(one: SimulatedShard, other: SimulatedShard) -> bool:
    """True if one of the two was started beside the other; who was there first need not have known of it then."""
    partners = one.launch.instruction.shares_with, other.launch.instruction.shares_with
    return other.launch.key[0] == partners[0] or one.launch.key[0] == partners[1]
