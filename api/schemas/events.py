"""The history of a job."""

from api.schemas.fields import View


class EventView(View):
    """One entry of a job's history; `kind` is a noun with a verb (`lease.extended`)."""

    sequence: int
    job_id: str
    at_s: float
    kind: str
    message: str
    round_index: int | None


class EventList(View):
    """Events oldest first; ask again with `after=next_after`."""

    items: list[EventView]
    next_after: int
