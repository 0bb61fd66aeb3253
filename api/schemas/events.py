"""The history of a job."""

from pydantic import Field

from api.schemas.fields import View


class EventView(View):
    """One entry of a job's history; `kind` is a noun with a verb (`lease.extended`)."""

    sequence: int
    job_id: str
    at_s: float
    kind: str
    message: str
    round_index: int | None
    gang_size: int | None = Field(
        description="Workers of the job's gang from this event on, 0 where it has ended; null: as many as before."
    )
    plan: str | None = Field(description="Execution plan of the gang that this event launches; null: none.")


class EventList(View):
    """Events oldest first; ask again with `after=next_after`."""

    items: list[EventView]
    next_after: int
