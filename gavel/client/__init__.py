"""The Python client: a typed wrapper of the REST API. Needs httpx, and nothing else of Gavel.

    with Client("http://127.0.0.1:8080", token) as gavel:
        job = gavel.submit(kind="mlp-b256", total_steps=500)
        print(gavel.wait(job["id"])["state"])

`AsyncClient` has the same calls, to be awaited (what lists: `async for`):

    async with AsyncClient("http://127.0.0.1:8080", token) as gavel:
        async for event in gavel.watch():
            print(event["event"], event["data"])

Answers are the API's JSON objects as they came, typed in answers/; bodies.py types what is sent.
"""

from gavel.client import answers, bodies
from gavel.client.answers import *  # noqa: F403  all of them, as its __all__ lists them
from gavel.client.autopilot import AutopilotCalls
from gavel.client.bodies import *  # noqa: F403
from gavel.client.code import CodeCalls
from gavel.client.errors import GavelApiError, ServiceUnreachable
from gavel.client.events import EventCalls, WatchEvent
from gavel.client.explain import ExplainCalls
from gavel.client.jobs import TERMINAL_STATES, JobCalls
from gavel.client.nodes import NodeCalls
from gavel.client.notifications import NotificationCalls
from gavel.client.overview import OverviewCalls
from gavel.client.people import PeopleCalls
from gavel.client.resources import ResourceCalls
from gavel.client.results import ResultCalls
from gavel.client.scheduling import SchedulingCalls
from gavel.client.wires import AsyncWire, SyncWire

__all__ = ["TERMINAL_STATES", "AsyncClient", "Client", "GavelApiError", "ServiceUnreachable", "WatchEvent"]
__all__ += answers.__all__
__all__ += bodies.__all__


class Calls(
    JobCalls,
    CodeCalls,
    EventCalls,
    PeopleCalls,
    NodeCalls,
    NotificationCalls,
    ResourceCalls,
    ResultCalls,
    SchedulingCalls,
    OverviewCalls,
    ExplainCalls,
    AutopilotCalls,
):
    """All calls, defined once for both clients."""


class Client(Calls, SyncWire):
    """Calls one Gavel service as the holder of one token. Not for sharing between threads."""


class AsyncClient(Calls, AsyncWire):
    """The same calls from asyncio. For one event loop; many calls may be under way at a time."""
