"""Which jobs a list has, and what a user may change of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gavel.types import Job, JobId, JobState


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
    demand: float | Literal["measured"] | None = None  # of a service: requests per second, or what its replicas measure
    program: Mapping[str, Any] | None = None  # fields of a new version of a service's specification


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of jobs, newest first, and the cursor of the next page (None: this is the last)."""

    jobs: tuple[Job, ...]
    next_cursor: JobId | None = None
