"""The service's settings by which a simulated run was decided, and which of them differ from the service's defaults."""

from collections.abc import Iterable
from dataclasses import dataclass

from gavel.config import Settings
from gavel.simulator.outcome import Scenario

DECIDING = (
    "policy",
    "round_duration_s",
    "solve_on",
    "allocation_interval_s",
    "planner",
    "backfill",
    "minimum_lease_fraction",
    "minimum_run_s",
    "start_limit_s",
    "price_moves",
    "space_sharing",
    "planning_lead_fraction",
)
ESTIMATING = ("profiling_workers_fraction", "profiling_budget_fraction", "profiling_window_s", "pair_trials")
LOSING = ("lost_retries", "lost_backoff_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A setting by name: what it means, its values in the runs (one unless they differ), and the service's default."""

    name: str
    meaning: str
    values: tuple[object, ...]
    default: object

    @property
    def is_default(self) -> bool:
        """Return True if every run has the service's default value."""
        return self.values == (self.default,)

    @property
    def text(self) -> str:
        """Return the values as text for people."""
        return ", ".join(written(value) for value in self.values)


def rules_of(scenarios: Iterable[Scenario]) -> tuple[Rule, ...]:
    """Return the rules that decided these runs, in a fixed order. Settings that none of the runs reads are left out."""
    runs = list(scenarios)
    names = [*DECIDING]
    names += ESTIMATING if any(run.is_estimated for run in runs) else ()
    names += LOSING if any(run.outages for run in runs) else ()
    return tuple(_rule(name, [run.settings for run in runs]) for name in names)


def _rule(name: str, settings: Iterable[Settings]) -> Rule:
    field = Settings.model_fields[name]
    values = tuple(dict.fromkeys(getattr(each, name) for each in settings))
    return Rule(name=name, meaning=field.description or "", values=values, default=field.default)


def written(value: object) -> str:
    """Return a setting's value as text: `on` or `off`, a number without trailing zeros, a text as it is."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
