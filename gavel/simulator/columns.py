"""How a table shows the figures of a run: the title of each, its unit, and how its values are written."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gavel.simulator.figures import RHO_LIMIT, Figures

ABSENT = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """The title and unit of one figure. With the unit `%`, a value of 1 is written as 100."""

    title: str
    unit: str = ""

    @property
    def header(self) -> str:
        """Return the title with its unit."""
        return f"{self.title} {self.unit}".strip()

    def text(self, value: float) -> str:
        """Return the value in this unit as text; a dash where there is none."""
        if math.isnan(value):
            return ABSENT
        if self.unit == "%":
            return f"{100 * value:.1f}"
        return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1e4 else f"{value:.4g}"


COLUMNS: Mapping[str, Column] = {
    "jobs": Column("jobs"),
    "mean_jct_h": Column("mean JCT", "h"),
    "median_jct_h": Column("median JCT", "h"),
    "p90_jct_h": Column("p90 JCT", "h"),
    "p99_jct_h": Column("p99 JCT", "h"),
    "max_jct_h": Column("longest JCT", "h"),
    "jct_floor_h": Column("JCT bound", "h"),
    "makespan_h": Column("makespan", "h"),
    "mean_rho": Column("mean rho"),
    "max_rho": Column("max rho"),
    "share_rho_above_limit": Column(f"jobs with rho > {RHO_LIMIT:g}", "%"),
    "preemptions": Column("preemptions"),
    "lost_h": Column("lost", "worker h"),
    "cost_usd": Column("cost", "$"),
    "deadlines": Column("deadlines"),
    "deadlines_missed": Column("deadlines missed"),
}
NEEDED_BY = {"deadlines": "deadlines", "deadlines_missed": "deadlines", "lost_h": "lost_h"}
"""figure -> the figure without which it means nothing: it is left out where that one is zero in every run."""


def shown(results: Iterable[Figures]) -> dict[str, Column]:
    """Return the columns that have a value in at least one of these runs, in their fixed order."""
    runs = list(results)
    return {name: column for name, column in COLUMNS.items() if any(_has(name, of) for of in runs)}


def _has(name: str, of: Figures) -> bool:
    needed = NEEDED_BY.get(name)
    return not math.isnan(getattr(of, name)) and (needed is None or getattr(of, needed) > 0)
