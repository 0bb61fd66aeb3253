"""The comparison of several policies as one HTML page that loads no other file; the same run gives the same bytes."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from gavel.simulator import columns
from gavel.simulator.charts import POINTS_MAX, Axes, averaged, breakable, line_chart, style
from gavel.simulator.figures import Gathered, slowdown_by_size
from gavel.simulator.outcome import SimulationOutcome
from gavel.simulator.rules import Rule, written

if TYPE_CHECKING:
    from gavel.simulator.compare import Comparison

Series = dict[str, list[tuple[float, float]]]
COURSE = "h since the trace began"

LABELS: Mapping[str, str] = {
    "measure": "jobs measured",
    "throughputs": "throughput table",
    "form": "format",
    "tier_shares": "parts of the tiers",
    "switch_cost_s": "cost of a start, s",
    "consolidation": "slower over several nodes",
    "lenient": "what cannot be used is skipped",
    "parity": "published mechanism",
    "estimate": "throughputs are hidden",
    "checkpoint_period_s": "checkpoint period, s",
}


def page(comparison: "Comparison") -> str:
    """Return the page: what was simulated, by which rules, the figures, the plots."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Simulation</title>'
        f"<style>{STYLE}{style('policy')}{style('type')}{style('tier')}</style>"
        f"<h1>Simulation</h1>{_scenario(comparison)}{_rules(comparison.rules)}"
        f"{_figures(comparison)}{_slowdown(comparison)}{_tiers(comparison)}<h2>Plots</h2><main>{''.join(_charts(comparison))}</main></html>\n"
    )


# --- texts and tables -------------------------------------------------------------------------------------------------


def _scenario(comparison: "Comparison") -> str:
    texts = {LABELS.get(name, name.replace("_", " ")): _words(value) for name, value in comparison.scenario.items()}
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{breakable(text)}</dd>" for name, text in texts.items())
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in comparison.left_out)
    return f"<dl>{rows}</dl>{notes}" if rows else notes


def _words(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(written(each) for each in value)
    return "yes" if value is True else written(value)


def _rules(rules: Sequence[Rule]) -> str:
    if not rules:
        return ""
    lines = [
        (rule.name, *(breakable(text) for text in (rule.text, written(rule.default), rule.meaning))) for rule in rules
    ]
    unlike = [rule.name for rule in rules if not rule.is_default]
    intro = f"Unlike the service's defaults: {', '.join(unlike)}." if unlike else "All are the service's defaults."
    table = _table(("setting", "in force", "service's default", "meaning"), lines, "rules", marked=unlike)
    return f"<h2>Rules in force</h2><p>{breakable(intro)}</p>{table}"


def _figures(comparison: "Comparison") -> str:
    of_policies = comparison.figures()
    lines = [
        (column.header, *(column.text(getattr(of, name)) for of in of_policies.values()))
        for name, column in columns.shown(of_policies.values()).items()
    ]
    lines.append(("utilisation %", *(f"{100 * result.utilisation:.1f}" for result in comparison.outcomes.values())))
    note = (
        f"<p>No schedule of these jobs ends in under {bound:.4g} h.</p>"
        if (bound := comparison.makespan_bound_h)
        else ""
    )
    return f"<h2>Figures</h2>{_table(('figure', *comparison.outcomes), lines, 'numbers')}{note}"


def _slowdown(comparison: "Comparison") -> str:
    of_policies = [slowdown_by_size(result.rows) for result in comparison.outcomes.values()]
    sizes = sorted(set().union(*of_policies))
    if len(sizes) < 2:
        return ""
    lines = [(str(size), *(f"{of.get(size, np.nan):.2f}" for of in of_policies)) for size in sizes]
    title = "<h2>Mean slowdown by size of gang</h2><p>JCT over the time alone on the fastest type.</p>"
    return f"{title}{_table(('workers', *comparison.outcomes), lines, 'numbers')}"


def _tiers(comparison: "Comparison") -> str:
    if len(used := _used_tiers(comparison)) < 2:
        return ""
    lines = []
    for policy, result in comparison.outcomes.items():
        shares = comparison.shares(result)
        for index, tier in used.items():
            parts = [*shares[tier].values(), float(result.tally.envy[index])]
            lines.append((breakable(policy), breakable(tier), *(f"{100 * part:.1f}" for part in parts)))
    types = next(iter(comparison.outcomes.values())).accelerator_types
    head = ("policy", "tier", *(f"{name} %" for name in types), "envy %")
    title = "<h2>Share of the busy time of each type, and envy, by tier</h2>"
    return f"{title}{_table(head, lines, 'numbers')}"


def _used_tiers(comparison: "Comparison") -> dict[int, str]:
    """Return the tiers that used an accelerator in any run, by their place among all tiers."""
    busy_s = np.sum([result.tally.busy_s.sum(axis=1) for result in comparison.outcomes.values()], axis=0)
    return {index: tier for index, tier in enumerate(comparison.tiers) if busy_s[index] > 0}


def _table(head: Sequence[str], lines: Iterable[Sequence[str]], kind: str, *, marked: Sequence[str] = ()) -> str:
    """Return a table whose first column holds headers. `lines` are HTML.

    Rows that begin with one of `marked` are highlighted.
    """
    top = "".join(f'<th scope="col">{breakable(title)}</th>' for title in head)
    rows = [
        f'<tr{" class=marked" if first in marked else ""}><th scope="row">{first}</th>'
        f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for first, *cells in lines
    ]
    return f'<div class="wide"><table class="{kind}"><tr>{top}</tr>{"".join(rows)}</table></div>'


# --- plots ------------------------------------------------------------------------------------------------------------


def _charts(comparison: "Comparison") -> Iterable[str]:
    yield line_chart(
        "Jobs completed within a time",
        Axes("h since submission", "jobs, %", is_log=True),
        _completed(comparison),
        "policy",
    )
    yield line_chart(
        "Finish-time fairness rho, jobs from best to worst served", Axes("jobs, %", "rho"), _rho(comparison), "policy"
    )
    yield line_chart("Workers busy", Axes(COURSE, "workers"), _busy(comparison), "policy")
    yield line_chart("Jobs waiting", Axes(COURSE, "jobs"), _waiting(comparison), "policy")
    for policy, result in comparison.outcomes.items():
        yield line_chart(f"Workers held by type: {policy}", Axes(COURSE, "workers"), _by_type(result), "type")
    if len(used := _used_tiers(comparison)) > 1:
        for policy, result in comparison.outcomes.items():
            yield line_chart(f"Workers held by tier: {policy}", Axes(COURSE, "workers"), _by_tier(used, result), "tier")


def _completed(comparison: "Comparison") -> Series:
    times = {policy: Gathered.of(result.rows).jct_s for policy, result in comparison.outcomes.items()}
    return {policy: [(x / 3600, 100 * part) for part, x in _ranked(of)] for policy, of in times.items()}


def _rho(comparison: "Comparison") -> Series:
    ranked = {policy: _ranked(Gathered.of(result.rows).rho) for policy, result in comparison.outcomes.items()}
    return {policy: [(100 * part, rho) for part, rho in points] for policy, points in ranked.items()}


def _busy(comparison: "Comparison") -> Series:
    return {
        policy: averaged([(at.at_s / 3600, sum(at.held_workers)) for at in result.timeline.moments])
        for policy, result in comparison.outcomes.items()
    }


def _waiting(comparison: "Comparison") -> Series:
    return {
        policy: averaged([(at.at_s / 3600, at.waiting_jobs) for at in result.timeline.moments])
        for policy, result in comparison.outcomes.items()
    }


def _by_type(result: SimulationOutcome) -> Series:
    return {
        name: averaged([(at.at_s / 3600, at.held_workers[column]) for at in result.timeline.moments])
        for column, name in enumerate(result.accelerator_types)
    }


def _by_tier(tiers: Mapping[int, str], result: SimulationOutcome) -> Series:
    return {
        tier: averaged([(at.at_s / 3600, at.of_tiers[row]) for at in result.timeline.moments])
        for row, tier in tiers.items()
    }


def _ranked(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return points (part of the jobs in (0, 1], value), sorted by value; of many values only some."""
    ranks = np.unique(np.linspace(1, len(values), min(len(values), POINTS_MAX)).astype(np.int64))
    return [
        (float(rank) / len(values), float(value)) for rank, value in zip(ranks, np.sort(values)[ranks - 1], strict=True)
    ]


STYLE = (
    ":root{color-scheme:light dark;--ink:#1f2937;--paper:#fff;--rule:#d1d5db;--faint:#4b5563;--mark:#fef3c7}"
    "@media (prefers-color-scheme:dark)"
    "{:root{--ink:#e5e7eb;--paper:#111827;--rule:#374151;--faint:#9ca3af;--mark:#3f3413}}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;"
    "color:var(--ink);background:var(--paper)}"
    "h1{margin:0 0 1rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0}dt{color:var(--faint)}"
    "dd{margin:0;overflow-wrap:anywhere}"
    ".note{border-left:.25rem solid #d97706;padding-left:.6rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid var(--rule);font-weight:400;text-align:left;vertical-align:top}"
    "tr:first-child th{color:var(--faint);vertical-align:bottom}th:first-child{padding-left:0}"
    ".numbers td,.numbers th+th{text-align:right}.numbers th[scope=col]{min-width:5rem;max-width:11rem}"
    ".rules td:last-child{color:var(--faint);min-width:16rem}.marked{background:var(--mark)}"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:1.5rem}"
    "figure{margin:0;display:flex;flex-wrap:wrap;gap:.25rem .75rem;align-items:flex-start}"
    "figcaption{flex:0 0 100%;font-weight:600;overflow-wrap:anywhere}"
    "figure>svg{flex:1 1 22rem;min-width:0;font:12px system-ui,sans-serif;fill:var(--ink)}"
    ".legend{flex:0 1 9rem;min-width:8rem;list-style:none;margin:1.2rem 0 0;padding:0;font-size:.85rem;line-height:1.3}"
    ".legend li{display:flex;gap:.4rem;margin-bottom:.3rem}.legend span{overflow-wrap:anywhere;min-width:0}"
    ".sample{width:1.75rem;height:.5rem;flex:none;margin-top:.35rem}"
    "@media (max-width:44rem){.legend{flex-basis:100%;margin:0;display:flex;flex-wrap:wrap;gap:0 1rem}}"
    ".line{fill:none;stroke-width:1.8}.grid{stroke:var(--rule)}"
)
