"""Several policies on one workload, compared: the figures of each policy, and a JSON record of every job."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gavel.simulator.figures import Figures, by_tier, figures, plain, slowdown_by_size, tier_shares
from gavel.simulator.outcome import SimulationOutcome
from gavel.simulator.page import page
from gavel.simulator.report import JobResult
from gavel.simulator.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`outcomes` by policy, in the order asked for; `scenario` says what was simulated, `rules` by which settings of
    the service, `left_out` what of the workload was not; `tiers` sorted by name.
    """

    scenario: Mapping[str, Any]
    outcomes: Mapping[str, SimulationOutcome]
    tiers: Sequence[str]
    rules: Sequence[Rule] = ()
    left_out: Sequence[str] = ()
    makespan_bound_h: float | None = None

    def figures(self) -> dict[str, Figures]:
        """Return the figures of each policy."""
        return {policy: figures(result.rows) for policy, result in self.outcomes.items()}

    def as_json(self) -> Iterator[str]:
        """Yield the JSON document in pieces.

        Times measured by a clock are left out, so the same run gives the same bytes.
        """
        bound_h = self.makespan_bound_h and float(f"{self.makespan_bound_h:.6g}")
        yield f'{{"scenario": {_json(dict(self.scenario))},\n"rules": {_json(self._rules())},\n'
        yield f'"left_out": {_json(list(self.left_out))},\n"makespan_bound_h": {_json(bound_h)},\n"policies": {{'
        for index, (policy, result) in enumerate(self.outcomes.items()):
            yield f'{"," if index else ""}\n{_json(policy)}: {_json(self._result(result))[:-1]}, "jobs": ['
            for place, row in enumerate(result.rows):
                yield f"{',' if place else ''}\n{_json(_job(row))}"
            yield "]}"
        yield "}}\n"

    def _rules(self) -> dict[str, Any]:
        """Return each rule with its value (a list where the runs differ) and the service's default."""
        return {
            rule.name: {
                "value": _plain(rule.values if len(rule.values) > 1 else rule.values[0]),
                "service_default": _plain(rule.default),
                "is_service_default": rule.is_default,
            }
            for rule in self.rules
        }

    def _result(self, result: SimulationOutcome) -> dict[str, Any]:
        counted = result.tally
        return {
            "figures": plain(asdict(figures(result.rows))),
            "tiers": {tier: plain(asdict(of_tier)) for tier, of_tier in by_tier(result.rows).items()},
            "slowdown_by_gang_size": {
                str(size): float(f"{mean:.6g}") for size, mean in slowdown_by_size(result.rows).items()
            },
            "tier_shares": {tier: plain(row) for tier, row in self.shares(result).items()},
            "tier_envy": plain(dict(zip(self.tiers, counted.envy.tolist(), strict=True))),
            "utilisation": float(f"{result.utilisation:.6g}"),
            "rounds": counted.rounds,
            "solves": counted.solves,
            "failed_solves": counted.failed_solves,
            "leases_kept": counted.kept,
            "leases_packed": counted.packed,
            "starts": counted.starts,
            "moves": counted.moves,
            "egress_bytes": counted.egress_bytes,
            "egress_usd": counted.egress_usd,
        }

    def as_html(self) -> str:
        """Return the comparison as one HTML page that loads no other file."""
        return page(self)

    def shares(self, result: SimulationOutcome) -> dict[str, dict[str, float]]:
        """Return each tier's part of the busy time of each type, in [0, 1]."""
        return tier_shares(result.tally.busy_s, self.tiers, result.accelerator_types)


def counted(outcomes: Iterable[SimulationOutcome]) -> dict[str, list[str]]:
    """Return the lines of a table of what was counted and measured during the runs, one value per run."""
    lines: dict[str, list[str]] = {}
    results = list(outcomes)
    for result in results:
        tally = result.tally
        solve_ms = np.quantile(tally.solve_s or [0.0], [0.5, 0.99]) * 1e3
        values = {
            "utilisation %": f"{100 * result.utilisation:.1f}",
            "leases packed %": f"{100 * tally.packed / max(1, tally.kept + tally.starts):.0f}",
            "most envy of a tier %": f"{100 * tally.envy.max(initial=0.0):.1f}",
            "moves between regions": str(tally.moves),
            "egress GB (USD)": f"{tally.egress_bytes / 1e9:.0f} ({tally.egress_usd:.2f})",
            "leases kept %": f"{100 * tally.kept / max(1, tally.kept + tally.starts):.0f}",
            "most jobs at once": str(tally.most_active),
            "rounds": str(tally.rounds),
            "solves (failed)": f"{tally.solves} ({tally.failed_solves})",
            "solve p50 / p99, ms": f"{solve_ms[0]:.1f} / {solve_ms[1]:.1f}",
            "rounds per CPU second": f"{tally.rounds / max(tally.cpu_s, 1e-9):.0f}",
        }
        if not any(each.tally.moves for each in results):
            del values["moves between regions"], values["egress GB (USD)"]
        for name, value in values.items():
            lines.setdefault(name, []).append(value)
    return lines


def _json(value: Any) -> str:
    return json.dumps(_finite(value), sort_keys=True)


def _job(row: JobResult) -> dict[str, Any]:
    return {
        name: float(f"{value:.9g}") if isinstance(value, float) else value
        for name, value in asdict(row).items()
        if value is not None
    }


def _plain(value: object) -> object:
    """Return the value as JSON can hold it: a path as its text, a tuple as a list."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _finite(value: Any) -> Any:
    """Return the value with None for NaN and infinities, which JSON cannot hold."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
