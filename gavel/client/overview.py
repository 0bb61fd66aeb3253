"""The clients' calls about the cluster at a glance: small answers, however many jobs and workers there are."""

from gavel.client.answers import Placements, Queue, Shares, Summary
from gavel.client.script import Method, Script, get


class OverviewCalls:
    """Calls about the cluster at a glance, part of both clients."""

    @Method
    def summary(self) -> Script[Summary]:
        """Return the cluster at a glance."""
        return get("/v1/summary")

    @Method
    def queue(self, *, tier: str | None = None, start: int = 0, limit: int = 50) -> Script[Queue]:
        """Return waiting jobs, tier by tier in the order in which they start, each with its position and reason."""
        return get("/v1/queue", tier=tier, start=start, limit=limit)

    @Method
    def placements(
        self, *, before: int | None = None, rounds: int = 40, node: str | None = None, job_id: str | None = None
    ) -> Script[Placements]:
        """Return which job held which worker in the last rounds: of one node, of one job, or the first workers."""
        return get("/v1/placements", before=before, rounds=rounds, node=node, job_id=job_id)

    @Method
    def shares(self, *, before: int | None = None, rounds: int = 40) -> Script[Shares]:
        """Return the part of all workers that each tier's jobs held, round by round."""
        return get("/v1/shares", before=before, rounds=rounds)
