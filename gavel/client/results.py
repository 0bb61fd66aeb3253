"""The clients' calls about what jobs leave: metrics, files, checkpoints."""

from typing import Any

from gavel.client.answers import Checkpoints, JobFiles, JobMetrics, JobUtilization
from gavel.client.script import Ask, Item, Items, Listing, Method, NextChunk, Open, Script, answered, get, part


class ResultCalls:
    """Calls about the results of jobs, part of both clients."""

    @Method
    def job_metrics(self, job_id: str, *, points: int | None = None) -> Script[JobMetrics]:
        """Return the metrics that the job has reported, in columns by step, at most `points` (500) of them."""
        return get(_path(job_id, "metrics"), points=points)

    @Method
    def job_utilization(self, job_id: str, *, points: int | None = None) -> Script[JobUtilization]:
        """Return CPU cores and memory of each rank over time, at most `points` (500) samples of each."""
        return get(_path(job_id, "utilization"), points=points)

    @Method
    def job_files(self, job_id: str) -> Script[JobFiles]:
        """Return the files that the job has written to its output folder."""
        return get(_path(job_id, "files"))

    @Listing
    def read_file(self, job_id: str, path: str, *, offset: int = 0) -> Items[bytes]:
        """Yield the bytes of a file of the job's output folder, from an offset on.

        Raise GavelApiError, ServiceUnreachable, and httpx.TransportError when the connection is lost in the middle.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        return _read(_path(job_id, "files/content"), headers, path=path)

    @Method
    def job_checkpoints(self, job_id: str) -> Script[Checkpoints]:
        """Return the checkpoints of the job that are kept, the newest first, and the name of the accepted one."""
        return get(_path(job_id, "checkpoints"))

    @Listing
    def read_checkpoint(self, job_id: str, name: str) -> Items[bytes]:
        """Yield the bytes of a tar archive of a checkpoint; raises as `read_file` does."""
        return _read(_path(job_id, f"checkpoints/{part(name)}"), {})


def _path(job_id: str, rest: str) -> str:
    return f"/v1/jobs/{part(job_id)}/{rest}"


def _read(url: str, headers: dict[str, str], **query: str) -> Items[Any]:
    """Yield the body of an answer. A connection that is lost in its middle raises httpx.TransportError."""
    yield from answered(Open(Ask(method="GET", path=url, headers=headers, params=query)), may_repeat=True)
    while (chunk := (yield NextChunk())) is not None:
        yield Item(chunk)
