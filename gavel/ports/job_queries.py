"""Which jobs a list has, and what a user may change of one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from gavel.types import DemandSpec, Job, JobId, JobState, ServiceSpec
from gavel.types.services import MEASURED

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The jobs that a list is limited to; a field that is None limits nothing.

    `match`: jobs whose id begins with it, or whose name it is.
    """

    states: tuple[JobState, ...] | None = None
    user: str | None = None
    tier: str | None = None
    label: tuple[str, str] | None = None
    array_id: JobId | None = None
    ids: tuple[JobId, ...] | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """The changes of a user to an unfinished job; None: no change. `labels` replace all."""

    weight: float | None = None
    priority: int | None = None
    labels: Mapping[str, str] | None = None
    longest_s: float | None = None  # of an interactive session
    replicas: int | None = None  # of a service
    replicas_min: int | None = None  # of a service
    replicas_max: int | None = None  # of a service
    demand: float | Literal["measured"] | None = None  # of a service: requests per second, or what its replicas measure
    rates: Mapping[str, float] | None = None  # of a service: what a replica answers, as in DemandSpec
    headroom: float | None = None  # of a service: as in DemandSpec
    program: Mapping[str, Any] | None = None  # fields of a new version of a service's specification

    def service_after(self, service: ServiceSpec) -> ServiceSpec:
        """Return the service after the change, a new program as a new version.

        The number that one with a demand has until that is known stays between its bounds.
        """
        least, most = _or(self.replicas_min, service.replicas_min), _or(self.replicas_max, service.replicas_max)
        replicas = _or(self.replicas, service.replicas)
        return replace(
            service,
            replicas=replicas if service.demand is None else max(least, min(replicas, most)),
            replicas_min=least,
            replicas_max=most,
            version=service.version + (self.program is not None),
            demand=service.demand and self._demand_after(service.demand),
        )

    def _demand_after(self, demand: DemandSpec) -> DemandSpec:
        stated = demand.stated
        if self.demand is not None:
            stated = None if self.demand == MEASURED else float(self.demand)
        headroom = _or(self.headroom, demand.headroom)
        return replace(demand, stated=stated, rates=_or(self.rates, demand.rates), headroom=headroom)


def _or(given: Value | None, before: Value) -> Value:
    return before if given is None else given


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of jobs, newest first, and the cursor of the next page (None: this is the last)."""

    jobs: tuple[Job, ...]
    next_cursor: JobId | None = None
