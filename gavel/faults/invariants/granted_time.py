"""I16: a gang that is never preempted goes on until its user, its time, its service or a lost part ends it."""

from gavel.backends.gang import GangKey
from gavel.backends.lease_rules import STOP
from gavel.faults.invariants.base import Evidence, Invariant
from gavel.faults.scenario import CRASHES, FaultKind, Request
from gavel.faults.shard import SimulatedShard
from gavel.types import Job

NEAR = (*CRASHES, FaultKind.SOLVER, FaultKind.DISK_FULL, FaultKind.DISK_SLOW, FaultKind.DISK_TORN)
"""Faults that hide no node from the service: what is hidden, and back, may have been planned elsewhere meanwhile."""
OPERATORS = (Request.CORDON, Request.DRAIN)  # an operator may empty a node
USERS = (Request.CANCEL, Request.PAUSE)


class GrantedTime(Invariant):
    """The service stops no session, no replica, and no other gang that it may not preempt, to give others its place."""

    name = "I16_granted_time"

    def __init__(self) -> None:
        self._seen: set[tuple[str, GangKey]] = set()

    def after_change(self, evidence: Evidence) -> None:
        """Check how the parts have ended that ended since the last time."""
        if any(fault.kind not in NEAR for fault in evidence.scenario.faults):
            return
        for node in evidence.nodes:
            for key, shard in node.shards.items():
                if shard.exit is not None and (node.name, key) not in self._seen:
                    self._seen.add((node.name, key))
                    self._check(evidence, shard)

    def _check(self, evidence: Evidence, shard: SimulatedShard) -> None:
        by = shard.exit.ended_by if shard.exit else ""
        may_die = bool(evidence.scenario.faults) or evidence.crashes.struck > 0  # and a lease may end with its leader
        is_by_the_service = by == STOP or (by and not may_die)
        job = evidence.jobs.get(shard.launch.key[0])
        if not is_by_the_service or job is None or job.spec.preemptible:
            return
        if not (self._is_over(evidence, job, shard) or self._is_asked_for(evidence, shard)):
            raise self.fail(f"gang {shard.launch.key} was ended ({by}), and it may not be preempted")

    def _is_over(self, evidence: Evidence, job: Job, shard: SimulatedShard) -> bool:
        """Return True if the job needs the gang no more, or another part of the gang has ended."""
        stored, (_, generation) = evidence.store.job(job.id), shard.launch.key
        if not stored.is_wanted or stored.state.is_terminal or stored.generation != generation:
            return True
        parts = [node.shards.get(shard.launch.key) for node in evidence.nodes]
        live = [part for part in parts if part is not None and (part.is_live or part is shard)]
        return len(live) < len(set(shard.launch.node_of_rank))

    def _is_asked_for(self, evidence: Evidence, shard: SimulatedShard) -> bool:
        """Return True if a user or an operator may have ended it."""
        program = int(shard.launch.instruction.argv[1])
        return any(
            each.kind in OPERATORS or (each.kind in USERS and each.target == program)
            for each in evidence.scenario.requests
        )
