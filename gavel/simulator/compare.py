"""Several policies on one workload, side by side: a table, a JSON of every job, one HTML page of plots."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from gavel.simulator.charts import line_chart
from gavel.simulator.figures import Figures, by_tier, figures, plain, tier_shares
from gavel.simulator.lean import Replay
from gavel.simulator.report import JobRow

COLUMNS: Mapping[str, str] = {
    "mean_jct_h": "mean JCT h",
    "median_jct_h": "median",
    "p90_jct_h": "p90",
    "p99_jct_h": "p99",
    "max_jct_h": "longest",
    "jct_floor_h": "JCT bound",
    "makespan_h": "makespan h",
    "mean_rho": "mean rho",
    "max_rho": "max rho",
    "share_rho_above_limit": "rho > 1.05",
    "preemptions": "preemptions",
    "lost_h": "lost h",
    "cost_usd": "cost $",
    "deadlines_missed": "missed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`replays` by policy, in the order asked for; `scenario` says what was simulated; `tiers` sorted by name."""

    scenario: Mapping[str, Any]
    replays: Mapping[str, Replay]
    tiers: Sequence[str]
    makespan_bound_h: float | None = None

    def figures(self) -> dict[str, Figures]:
        """Of each policy."""
        return {policy: figures(result.rows) for policy, result in self.replays.items()}

    def as_json(self) -> str:
        """Everything but what a clock measured: the same run gives the same bytes."""
        content = {
            "scenario": dict(self.scenario),
            "makespan_bound_h": self.makespan_bound_h and float(f"{self.makespan_bound_h:.6g}"),
            "policies": {policy: self._result(result) for policy, result in self.replays.items()},
        }
        return json.dumps(_finite(content), indent=1, sort_keys=True) + "\n"

    def _result(self, result: Replay) -> dict[str, Any]:
        counted = result.tally
        return {
            "figures": plain(asdict(figures(result.rows))),
            "tiers": {tier: plain(asdict(of_tier)) for tier, of_tier in by_tier(result.rows).items()},
            "tier_shares": {tier: plain(row) for tier, row in self._shares(result).items()},
            "utilisation": float(f"{result.utilisation:.6g}"),
            "rounds": counted.rounds,
            "solves": counted.solves,
            "failed_solves": counted.failed_solves,
            "leases_kept": counted.kept,
            "starts": counted.starts,
            "jobs": [_job(row) for row in result.rows],
        }

    def _shares(self, result: Replay) -> dict[str, dict[str, float]]:
        return tier_shares(result.tally.busy_s, self.tiers, result.accelerator_types)

    def as_html(self) -> str:
        """A page that needs nothing but itself."""
        said = ", ".join(f"{name} {value}" for name, value in self.scenario.items())
        charts = [
            line_chart("Jobs completed within a time", "hours since submission (log)", self._cdf(), log_x=True),
            line_chart("Finish-time fairness rho, jobs from best to worst served", "jobs", self._rho()),
            line_chart("Workers busy", "hours", self._busy()),
            line_chart("Jobs waiting", "hours", self._waiting()),
            *(self._by_type(policy, result) for policy, result in self.replays.items()),
        ]
        body = "".join(f"<section>{chart}</section>" for chart in charts)
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Simulation</title>'
            f"<style>{STYLE}</style><h1>Simulation</h1><p>{escape(said)}</p>{self._table()}"
            f"<main>{body}</main>{self._tier_table()}</html>\n"
        )

    def _table(self) -> str:
        head = "".join(f"<th>{escape(title)}</th>" for title in ("policy", *COLUMNS.values(), "utilisation"))
        lines = []
        for policy, found in self.figures().items():
            cells = [f"{getattr(found, name):.4g}" for name in COLUMNS]
            cells.append(f"{self.replays[policy].utilisation:.3f}")
            lines.append(f"<tr><th>{escape(policy)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        bound = self.makespan_bound_h
        note = f"<p>No schedule of these jobs ends in under {bound:.4g} h.</p>" if bound else ""
        return f"<table><tr>{head}</tr>{''.join(lines)}</table>{note}"

    def _tier_table(self) -> str:
        lines = []
        for policy, result in self.replays.items():
            for tier, shares in self._shares(result).items():
                cells = "".join(f"<td>{share:.1%}</td>" for share in shares.values())
                lines.append(f"<tr><th>{escape(policy)}</th><th>{escape(tier)}</th>{cells}</tr>")
        types = next(iter(self.replays.values())).accelerator_types
        head = "".join(f"<th>{escape(name)}</th>" for name in ("policy", "tier", *types))
        return f"<h2>Share of the busy time of each type, by tier</h2><table><tr>{head}</tr>{''.join(lines)}</table>"

    def _cdf(self) -> dict[str, list[tuple[float, float]]]:
        return {
            policy: [(jct_s / 3600, (index + 1) / len(result.rows)) for index, jct_s in enumerate(_sorted_jct(result))]
            for policy, result in self.replays.items()
        }

    def _rho(self) -> dict[str, list[tuple[float, float]]]:
        return {
            policy: list(enumerate(sorted(row.rho for row in result.rows if row.rho is not None), start=1))
            for policy, result in self.replays.items()
        }

    def _busy(self) -> dict[str, list[tuple[float, float]]]:
        return {
            policy: [(at_s / 3600, sum(held)) for at_s, held in _course(result)]
            for policy, result in self.replays.items()
        }

    def _waiting(self) -> dict[str, list[tuple[float, float]]]:
        return {
            policy: [(at_s / 3600, n) for at_s, n in zip(line.at_s, line.waiting_jobs, strict=True)]
            for policy, line in ((policy, result.timeline) for policy, result in self.replays.items())
        }

    def _by_type(self, policy: str, result: Replay) -> str:
        series = {
            name: [(at_s / 3600, held[column]) for at_s, held in _course(result)]
            for column, name in enumerate(result.accelerator_types)
        }
        return line_chart(f"Workers held by type: {policy}", "hours", series)


def counted(replays: Iterable[Replay]) -> dict[str, list[str]]:
    """Lines for a table of what was counted and measured on the way, one value per replay."""
    lines: dict[str, list[str]] = {}
    for result in replays:
        tally = result.tally
        solve_ms = np.quantile(tally.solve_s or [0.0], [0.5, 0.99]) * 1e3
        values = {
            "utilisation": f"{result.utilisation:.3f}",
            "leases kept": f"{tally.kept / max(1, tally.kept + tally.starts):.0%}",
            "most jobs at once": str(tally.most_active),
            "rounds": str(tally.rounds),
            "solves (failed)": f"{tally.solves} ({tally.failed_solves})",
            "solve p50 / p99, ms": f"{solve_ms[0]:.1f} / {solve_ms[1]:.1f}",
            "rounds per CPU second": f"{tally.rounds / max(tally.cpu_s, 1e-9):.0f}",
        }
        for name, value in values.items():
            lines.setdefault(name, []).append(value)
    return lines


STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;color:#1f2937}"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}"
    "th,td{padding:.25rem .6rem;border-bottom:1px solid #e5e7eb;text-align:right;font-weight:400}"
    "th:first-child{text-align:left}svg{width:100%;font:11px system-ui,sans-serif;fill:#374151}"
    ".grid{stroke:#e5e7eb}.title{font-weight:600;font-size:13px}.name{font-weight:600}"
    "@media (prefers-color-scheme:dark){body{background:#111827;color:#e5e7eb}svg{fill:#d1d5db}.grid{stroke:#374151}}"
)


def _sorted_jct(result: Replay) -> list[float]:
    return sorted(row.jct_s for row in result.rows if row.jct_s is not None)


def _course(result: Replay) -> list[tuple[float, tuple[float, ...]]]:
    return list(zip(result.timeline.at_s, result.timeline.held_workers, strict=True))


def _job(row: JobRow) -> dict[str, Any]:
    return {
        name: float(f"{value:.9g}") if isinstance(value, float) else value
        for name, value in asdict(row).items()
        if value is not None
    }


def _finite(value: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
