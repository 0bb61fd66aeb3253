"""I7: jobs change only along the table of their lifecycle, and what has ended stays so."""

from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.mechanism.jobs.lifecycle import TABLE
from gavel.types import JobState


def _reachable() -> frozenset[tuple[JobState, JobState]]:
    """Return the pairs of states that up to two transitions of one commit lead through."""
    one = {(begin, end) for (begin, _), end in TABLE.items()}
    two = {(begin, end) for begin, middle in one for at, end in one if at is middle}
    return frozenset(one | two | {(state, state) for state in JobState})


REACHABLE = _reachable()


class Transitions(Invariant):
    """Only transitions of the table happen."""

    name = "I7_transitions"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check each job's state before and after."""
        for job_id, after in commit.after.items():
            before = commit.before.get(job_id)
            begin = before.state if before else JobState.QUEUED
            if (begin, after.state) not in REACHABLE:
                raise self.fail(f"job {job_id} went from {begin} to {after.state}")

    def at_end(self, evidence: Evidence) -> None:
        """Check that no job has left the state in which it ended."""
        for job_id, seen in evidence.jobs.items():
            state = evidence.store.job(job_id).state
            if seen.state.is_terminal and state is not seen.state:
                raise self.fail(f"job {job_id} was {seen.state} and is {state}")
