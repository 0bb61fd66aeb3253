"""I19: in a run in which only processes of the service and solvers fail, a reserved session starts at its time."""

from gavel.faults.clocks import EPOCH_S
from gavel.faults.invariants.base import Evidence, Invariant
from gavel.faults.invariants.prompt_hand_over import prompt_s
from gavel.faults.scenario import CRASHES, ROUND_S, FaultKind, Request
from gavel.faults.service import RESTART_S
from gavel.mechanism.planning.reserved_leases import SHORTEST_ROUND
from gavel.types import JobId

BEARABLE = (*CRASHES, FaultKind.SOLVER)
IN_THE_WAY = (Request.CORDON, Request.DRAIN, Request.CANCEL, Request.PAUSE)
EARLY_S = 0.5  # by which clocks of services may be ahead


class Reservations(Invariant):
    """What was accepted for a session is there at its time, whoever else holds, or asks for, workers meanwhile."""

    name = "I19_reservations"

    def __init__(self) -> None:
        self._started_s: dict[JobId, float] = {}

    def after_change(self, evidence: Evidence) -> None:
        """Take note of when each job's first gang has started."""
        for _, shard in evidence.running():
            self._started_s.setdefault(shard.launch.key[0], evidence.schedule.now_s)

    def at_end(self, evidence: Evidence) -> None:
        """Check when each reserved session has started."""
        asked = {each.kind for each in evidence.scenario.requests}
        failed = {each.kind for each in evidence.scenario.faults}
        if not failed.issubset(BEARABLE) or not asked.isdisjoint(IN_THE_WAY):
            return
        for job_id in evidence.ledger.submitted.values():
            reserved_at_s = evidence.store.job(job_id).spec.reserved_at_s
            if reserved_at_s is not None and job_id not in evidence.ledger.cancellable:
                self._check(evidence, job_id, reserved_at_s - EPOCH_S)

    def _check(self, evidence: Evidence, job_id: JobId, due_s: float) -> None:
        started_s = self._started_s.get(job_id)
        if started_s is None and evidence.scenario.faults:
            return  # no process of the service was there for all of its time
        crashes = len(evidence.scenario.faults) + evidence.crashes.struck
        takeovers_s = crashes * (RESTART_S + evidence.settings.lease_of_leader_s)
        latest_s = due_s + prompt_s(evidence.settings) + SHORTEST_ROUND * ROUND_S + takeovers_s
        if started_s is None or not due_s - EARLY_S <= started_s <= latest_s:
            raise self.fail(f"session {job_id} was reserved for {due_s:.1f} s, and started at {started_s} s")
