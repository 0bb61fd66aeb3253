"""I14: every acknowledged operation ends, once, and is carried out."""

from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.types import JobId, JobState, OperationState


class Operations(Invariant):
    """No operation is lost, and no gang is launched on a node that was closed before."""

    name = "I14_operations"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check that no job is launched on a node that the same state calls closed."""
        launched = [
            (job_id, job.generation)
            for job_id, job in commit.after.items()
            if job.state is JobState.LEASED and _is_new(commit, job_id, job.generation)
        ]
        if not launched or not evidence.ledger.operations:
            return
        closed = {node.name for node in evidence.store.nodes() if node.is_cordoned}
        node_of = {worker.id: worker.node for worker in evidence.store.cluster().workers}
        leases = {  # of a plan that came to nothing a newer one may have the generation again
            (lease.job_id, lease.generation): lease
            for record in sorted(evidence.store.snapshot().round_records, key=lambda each: each.plan.round_index)
            for lease in record.plan.leases
        }
        for key in launched:
            nodes = {node_of.get(worker, "") for worker in leases[key].worker_ids} if key in leases else set()
            if nodes & closed:
                raise self.fail(f"job {key[0]} was launched on {sorted(nodes & closed)}, which is closed")

    def at_end(self, evidence: Evidence) -> None:
        """Check that every acknowledged operation has ended."""
        for operation_id in evidence.ledger.operations:
            operation = evidence.store.operation(operation_id)
            if operation.state is OperationState.PENDING:
                raise self.fail(f"{operation.kind} of {operation.subject} was acknowledged and has not ended")


def _is_new(commit: Commit, job_id: JobId, generation: int) -> bool:
    before = commit.before.get(job_id)
    return before is None or before.generation < generation
