"""What `gavel simulate --compare` prints: a line for each policy on one's own workload, the best in the mean first."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from gavel.policies import registry
from gavel.simulator.columns import COLUMNS
from gavel.simulator.compare import Comparison
from gavel.simulator.figures import Figures, slowdown_by_size

COMPARED = (
    "hierarchical",
    "rank_weighted_speed",
    "rank_weighted_speed?length=attained_service",
    "max_min_fairness",
    "finish_time_fairness",
    "max_total_relative_speed?ageing=attained_service",
    "shortest_job_first",
    "least_remaining_work",
    "least_attained_service",
    "fifo",
    "equal_share",
)
FIGURES = ("mean_jct_h", "median_jct_h", "p99_jct_h", "max_jct_h", "share_rho_above_limit")


def to_compare(given: Sequence[str], service: str, folder: Path | None) -> tuple[str, ...]:
    """Return the policies to simulate, each once: the `service`'s first, then those `given`, without any all of
    COMPARED and the operator's own in `folder`. Raises InvalidRequest for an unknown one.
    """
    own = [each.name for each in registry.available(folder) if folder and not _is_built_in(each.name)]
    wanted = (service, *(given or (*COMPARED, *own)))
    return tuple(dict.fromkeys(registry.canonical(each, folder) for each in wanted))


def _is_built_in(name: str) -> bool:
    return any(each.name == name for each in registry.available())


def table_of(comparison: Comparison, service: str) -> Table:
    """Return the table: a line a policy, the least mean completion time first; `service` is the one in the settings."""
    figures = comparison.figures()
    title = f"{comparison.scenario['trace']} on {comparison.scenario['cluster']}"
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for name in FIGURES:
        table.add_column(COLUMNS[name].header, justify="right")
    table.add_column("mean slowdown by gang size", overflow="fold")
    for policy in _best_first(figures):
        slow = slowdown_by_size(comparison.outcomes[policy].rows)
        by_size = ", ".join(f"{size}: {mean:.2f}" for size, mean in sorted(slow.items()))
        values = (COLUMNS[name].text(getattr(figures[policy], name)) for name in FIGURES)
        table.add_row(f"{policy} (the service's)" if policy == service else policy, *values, by_size)
    return table


def verdict(comparison: Comparison, service: str) -> str:
    """Return in a sentence which policy has the least mean completion time here, by how much, and what it costs."""
    figures = comparison.figures()
    best = _best_first(figures)[0]
    ours, other = figures[service], figures[best]
    if best == service:
        return f"Of these, the service's policy {service} has the least mean JCT here."
    late = COLUMNS["share_rho_above_limit"]
    return (
        f"{best} has the least mean JCT here, {1 - other.mean_jct_h / ours.mean_jct_h:.1%} below the service's "
        f"{service}; longest JCT {other.max_jct_h:.4g} h instead of {ours.max_jct_h:.4g} h, {late.title} "
        f"{late.text(other.share_rho_above_limit)} % instead of {late.text(ours.share_rho_above_limit)} %. "
        f"{_choose_when(best)}"
    ).rstrip()


def _best_first(figures: Mapping[str, Figures]) -> list[str]:
    return sorted(figures, key=lambda policy: (figures[policy].mean_jct_h, policy))


def _choose_when(policy: str) -> str:
    """The sentence that says when to choose a policy; of an operator's own, maybe nothing."""
    name = policy.partition("?")[0]
    return next((each.choose_when for each in registry.available() if each.name == name), "")
