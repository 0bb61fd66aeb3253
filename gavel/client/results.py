"""The clients' calls about what jobs leave: metrics."""

from gavel.client.answers import JobMetrics
from gavel.client.script import Method, Script, get, part


class ResultCalls:
    """Calls about the results of jobs, part of both clients."""

    @Method
    def job_metrics(self, job_id: str, *, points: int | None = None) -> Script[JobMetrics]:
        """Return the metrics that the job has reported, in columns by step, at most `points` (500) of them."""
        return get(f"/v1/jobs/{part(job_id)}/metrics", points=points)
