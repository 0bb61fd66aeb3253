"""I10: without faults a gang of the round in force starts promptly."""

from gavel.backends.gang import GangKey
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.types import JobState, Lease

TICKS = 3  # the old gang's end is seen, committed, and the new one is launched
SAVE_S = 1.0


class PromptHandOver(Invariant):
    """The gang of a new lease starts within a few ticks of the lease's beginning."""

    name = "I10_prompt_hand_over"

    def __init__(self) -> None:
        self._due: dict[GangKey, tuple[float, Lease]] = {}  # until when (true time) the gang of each lease has to start

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Take note of new leases, and check those that are due."""
        if evidence.scenario.faults or evidence.crashes.struck:
            return
        now_s = evidence.schedule.now_s
        started = {shard.launch.key for node in evidence.nodes for shard in node.shards.values()}
        self._due = {
            key: (due_s, lease)
            for key, (due_s, lease) in self._due.items()
            if key not in started and self._waits(evidence, key) and not self._is_closed(evidence, lease)
        }
        for key, (due_s, _) in self._due.items():
            if now_s > due_s:
                raise self.fail(f"gang {key} has not started {now_s - due_s:.1f} s after it was due")
        if commit.changes.round is not None:
            plan = commit.changes.round.plan
            lead_s = plan.starts_at_s - commit.changes.round.problem.now_s
            within_s = max(0.0, lead_s) + TICKS * evidence.settings.tick_s + evidence.settings.lease_grace_s + SAVE_S
            self._due = {
                key: (now_s + within_s, lease)
                for lease in plan.leases
                if (key := (lease.job_id, lease.generation)) not in started
            }

    def _waits(self, evidence: Evidence, key: GangKey) -> bool:
        """Return True while the job of the gang still wants to run, and has no newer gang."""
        job = evidence.store.job(key[0])
        is_done = job.state.is_terminal or job.generation > key[1]
        return job.is_wanted and not is_done and not (job.state is JobState.QUEUED and job.generation == key[1])

    def _is_closed(self, evidence: Evidence, lease: Lease) -> bool:
        """Return True if an operator has closed a node of the lease since it was planned."""
        closed = {node.name for node in evidence.store.nodes() if node.is_cordoned}
        return any(each.node in closed for each in evidence.store.cluster().workers if each.id in lease.worker_ids)
