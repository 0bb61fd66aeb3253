"""I10: without faults other than crashes a gang of the round in force starts promptly."""

from collections import Counter

from gavel.backends.gang import GangKey
from gavel.config import Settings
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.faults.scenario import CRASHES
from gavel.types import JobState, Lease

TICKS = 3  # the old gang's end is seen, committed, and the new one is launched
SAVE_S = 1.0


def prompt_s(settings: Settings) -> float:
    """Return within how many seconds a gang whose lease begins has to start."""
    return TICKS * settings.tick_s + settings.lease_grace_s + SAVE_S


class PromptHandOver(Invariant):
    """The gang of a new lease starts, whole, within a few ticks of the lease's beginning, or of the next leader's."""

    name = "I10_prompt_hand_over"

    def __init__(self) -> None:
        self._due: dict[GangKey, tuple[float, Lease]] = {}  # until when (true time) the gang of each lease has to start
        self._leader = 0  # the generation of the leader that committed last

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Take note of new leases, and check those that are due."""
        if any(fault.kind not in CRASHES for fault in evidence.scenario.faults):
            return
        now_s, due_in_s = evidence.schedule.now_s, prompt_s(evidence.settings)
        if commit.leader != self._leader:
            self._leader = commit.leader
            self._due = {key: (max(due_s, now_s + due_in_s), lease) for key, (due_s, lease) in self._due.items()}
        started = self._started(evidence)
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
            self._due = {
                key: (now_s + max(0.0, lead_s) + due_in_s, lease)
                for lease in plan.leases
                if (key := (lease.job_id, lease.generation)) not in started
            }

    def _started(self, evidence: Evidence) -> set[GangKey]:
        """Return the gangs of which every rank has been started."""
        launches = [shard.launch for node in evidence.nodes for shard in node.shards.values()]
        ranks = Counter(launch.key for launch in launches for _ in launch.ranks)
        return {launch.key for launch in launches if ranks[launch.key] == len(launch.instruction.worker_ids)}

    def _waits(self, evidence: Evidence, key: GangKey) -> bool:
        """Return True while the job of the gang still wants to run, and has no newer gang."""
        job = evidence.store.job(key[0])
        is_done = job.state.is_terminal or job.generation > key[1]
        return job.is_wanted and not is_done and not (job.state is JobState.QUEUED and job.generation == key[1])

    def _is_closed(self, evidence: Evidence, lease: Lease) -> bool:
        """Return True if an operator has closed a node of the lease since it was planned."""
        closed = {node.name for node in evidence.store.nodes() if node.is_cordoned}
        return any(each.node in closed for each in evidence.store.cluster().workers if each.id in lease.worker_ids)
