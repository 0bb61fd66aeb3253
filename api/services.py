"""What the API is built over: handed to `create_app`, reached by routes through `ServicesDep`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from api.forecasts import Forecasts
from api.grouping import Matrices
from api.overview import Lines
from api.schemas import CatalogueEntry
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
    forecasts: Forecasts = field(default_factory=Forecasts)
    lines: Lines = field(default_factory=Lines)
    matrices: Matrices = field(default_factory=Matrices)


async def services_of(request: Request) -> Services:
    """The services of the app that serves this request."""
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(services_of)]
