"""Whether there is disk for another gang."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """The disk of the service: why no gang may be started at all (empty: there is room), and whose may not, and why."""

    low: str = ""
    low_since_s: float = 0.0
    over_budget: Mapping[str, str] = field(default_factory=dict)
