"""What the API is built over: handed to `create_app`, reached by routes through `ServicesDep`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from api.forecasts import Forecasts, round_forecasts
from api.grouping import grouped_view
from api.newest import Newest
from api.overview import Line, line_of
from api.schemas import AllocationView, CatalogueEntry
from gavel.config import Settings
from gavel.ports import Clock, Store
from gavel.types import JobId

ReadLog = Callable[[JobId, int, int], tuple[bytes, int]]


def installed_catalogue() -> Mapping[str, CatalogueEntry]:
    """The job kinds that come with Gavel, by name."""
    from workloads.catalogue import CATALOGUE, argv_of

    return {
        name: CatalogueEntry(name=name, description=kind.description, argv=list(argv_of(name)))
        for name, kind in sorted(CATALOGUE.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Ports and settings. `read_log(job_id, offset, limit_bytes)` gives bytes and the offset to ask for next."""

    store: Store
    settings: Settings
    clock: Clock
    read_log: ReadLog
    is_scheduler_alive: Callable[[], bool]
    leads_scheduler: Callable[[], bool] = lambda: True  # whether it is this process that plans
    cluster_notes: Callable[[], Sequence[str]] = tuple  # what is wrong with the cluster as a whole
    scheduler_trouble: Callable[[], str] = str  # how this service's own scheduler ended of late; empty: it did not
    catalogue: Mapping[str, CatalogueEntry] = field(default_factory=installed_catalogue)
    forecasts: Forecasts = field(default_factory=round_forecasts)
    lines: Newest[Line] = field(default_factory=lambda: Newest(line_of))
    matrices: Newest[AllocationView] = field(default_factory=lambda: Newest(grouped_view, kept_s=1.0))


async def services_of(request: Request) -> Services:
    """The services of the app that serves this request."""
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(services_of)]
