"""Several policies on one workload, side by side: a table, a JSON of every job, one HTML page of plots."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from gavel.simulator.charts import POINTS_MAX, line_chart
from gavel.simulator.figures import Figures, Gathered, by_tier, figures, plain, tier_shares
from gavel.simulator.outcome import Replay
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

    def as_json(self) -> Iterator[str]:
        """Everything but what a clock measured, piece by piece: the same run gives the same bytes."""
        bound_h = self.makespan_bound_h and float(f"{self.makespan_bound_h:.6g}")
        yield f'{{"scenario": {_json(dict(self.scenario))},\n"makespan_bound_h": {_json(bound_h)},\n"policies": {{'
        for index, (policy, result) in enumerate(self.replays.items()):
            yield f'{"," if index else ""}\n{_json(policy)}: {_json(self._result(result))[:-1]}, "jobs": ['
            for place, row in enumerate(result.rows):
                yield f"{',' if place else ''}\n{_json(_job(row))}"
            yield "]}"
        yield "}}\n"

    def _result(self, result: Replay) -> dict[str, Any]:
        counted = result.tally
        return {
            "figures": plain(asdict(figures(result.rows))),
            "tiers": {tier: plain(asdict(of_tier)) for tier, of_tier in by_tier(result.rows).items()},
            "tier_shares": {tier: plain(row) for tier, row in self._shares(result).items()},
            "tier_envy": plain(dict(zip(self.tiers, counted.envy.tolist(), strict=True))),
            "utilisation": float(f"{result.utilisation:.6g}"),
            "rounds": counted.rounds,
            "solves": counted.solves,
            "failed_solves": counted.failed_solves,
            "leases_kept": counted.kept,
            "leases_packed": counted.packed,
            "starts": counted.starts,
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
            *(self._of_tiers(policy, result) for policy, result in self.replays.items() if len(self.tiers) > 1),
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
                cells += f"<td>{result.tally.envy[self.tiers.index(tier)]:.1%}</td>"
                lines.append(f"<tr><th>{escape(policy)}</th><th>{escape(tier)}</th>{cells}</tr>")
        types = next(iter(self.replays.values())).accelerator_types
        head = "".join(f"<th>{escape(name)}</th>" for name in ("policy", "tier", *types, "envy"))
        title = "<h2>Share of the busy time of each type, and envy, by tier</h2>"
        return f"{title}<table><tr>{head}</tr>{''.join(lines)}</table>"

    def _cdf(self) -> dict[str, list[tuple[float, float]]]:
        times = {policy: Gathered.of(result.rows).jct_s for policy, result in self.replays.items()}
        return {policy: [(x / 3600, rank / len(of)) for rank, x in _ranked(of)] for policy, of in times.items()}

    def _rho(self) -> dict[str, list[tuple[float, float]]]:
        return {policy: _ranked(Gathered.of(result.rows).rho) for policy, result in self.replays.items()}

    def _busy(self) -> dict[str, list[tuple[float, float]]]:
        return {
            policy: [(at.at_s / 3600, sum(at.held_workers)) for at in result.timeline.moments]
            for policy, result in self.replays.items()
        }

    def _waiting(self) -> dict[str, list[tuple[float, float]]]:
        return {
            policy: [(at.at_s / 3600, at.waiting_jobs) for at in result.timeline.moments]
            for policy, result in self.replays.items()
        }

    def _by_type(self, policy: str, result: Replay) -> str:
        series = {
            name: [(at.at_s / 3600, at.held_workers[column]) for at in result.timeline.moments]
            for column, name in enumerate(result.accelerator_types)
        }
        return line_chart(f"Workers held by type: {policy}", "hours", series)

    def _of_tiers(self, policy: str, result: Replay) -> str:
        series = {
            tier: [(at.at_s / 3600, at.of_tiers[row]) for at in result.timeline.moments]
            for row, tier in enumerate(self.tiers)
        }
        return line_chart(f"Workers held by tier: {policy}", "hours", series)


def counted(replays: Iterable[Replay]) -> dict[str, list[str]]:
    """Lines for a table of what was counted and measured on the way, one value per replay."""
    lines: dict[str, list[str]] = {}
    for result in replays:
        tally = result.tally
        solve_ms = np.quantile(tally.solve_s or [0.0], [0.5, 0.99]) * 1e3
        values = {
            "utilisation": f"{result.utilisation:.3f}",
            "leases packed": f"{tally.packed / max(1, tally.kept + tally.starts):.0%}",
            "most envy of a tier": f"{tally.envy.max(initial=0.0):.1%}",
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


def _ranked(values: Sequence[float]) -> list[tuple[float, float]]:
    """(rank from 1, value) from the least to the largest, of many values some."""
    ranks = np.unique(np.linspace(1, len(values), min(len(values), POINTS_MAX)).astype(np.int64))
    return [(float(rank), float(value)) for rank, value in zip(ranks, np.sort(values)[ranks - 1], strict=True)]


def _json(value: Any) -> str:
    return json.dumps(_finite(value), sort_keys=True)


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
