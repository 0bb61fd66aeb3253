"""The Python client: a typed wrapper of the REST API. Needs httpx, and nothing else of Gavel.

    with Client("http://127.0.0.1:8080", token) as gavel:
        job = gavel.submit(kind="mlp-b256", total_steps=500)
        print(gavel.wait(job["id"])["state"])

`AsyncClient` has the same calls, to be awaited (what lists: `async for`):

    async with AsyncClient("http://127.0.0.1:8080", token) as gavel:
        async for event in gavel.follow_events():
            print(event["event"], event["data"])

Answers are the API's JSON objects as they came, typed in answers.py; /docs explains every field.
"""

from gavel.client.answers import (
    Allocation,
    AllocationRow,
    AuditEntry,
    Cancelled,
    Cluster,
    Deadline,
    Estimator,
    Event,
    Job,
    JobBatch,
    Lease,
    Node,
    Operation,
    Round,
    Submission,
    Throughput,
    Throughputs,
    Tier,
    TierLimits,
    Usage,
    User,
    Worker,
)
from gavel.client.errors import GavelApiError, ServiceUnreachable
from gavel.client.events import EventCalls, LiveEvent
from gavel.client.explain import Calibration, Effects, ExplainCalls, Explanation, Replayed
from gavel.client.jobs import TERMINAL_STATES, JobCalls
from gavel.client.nodes import NodeCalls
from gavel.client.overview import OverviewCalls, Placements, Queue, QueueItem, Shares, Summary
from gavel.client.people import BearerToken, PeopleCalls
from gavel.client.resources import ResourceCalls
from gavel.client.scheduling import SchedulingCalls
from gavel.client.wires import AsyncWire, SyncWire

__all__ = [
    "TERMINAL_STATES",
    "Allocation",
    "AllocationRow",
    "AsyncClient",
    "AuditEntry",
    "BearerToken",
    "Calibration",
    "Cancelled",
    "Client",
    "Cluster",
    "Deadline",
    "Effects",
    "Estimator",
    "Event",
    "Explanation",
    "GavelApiError",
    "Job",
    "JobBatch",
    "Lease",
    "LiveEvent",
    "Node",
    "Operation",
    "Placements",
    "Queue",
    "QueueItem",
    "Replayed",
    "Round",
    "ServiceUnreachable",
    "Shares",
    "Submission",
    "Summary",
    "Throughput",
    "Throughputs",
    "Tier",
    "TierLimits",
    "Usage",
    "User",
    "Worker",
]


class Calls(JobCalls, EventCalls, PeopleCalls, NodeCalls, ResourceCalls, SchedulingCalls, OverviewCalls, ExplainCalls):
    """Every call, said once."""


class Client(Calls, SyncWire):
    """Calls one Gavel service as the holder of one token. Not for sharing between threads."""


class AsyncClient(Calls, AsyncWire):
    """The same calls from asyncio. For one event loop; many calls may be under way at a time."""
