"""What `gavel simulate` does with its options: workload and scenarios from texts, runs, and their comparison."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import Progress

from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.simulator import interior, setup
from gavel.simulator.compare import Comparison
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.figures import makespan_bound_h
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Replay, Scenario
from workloads.traces.throughputs import ScaledRates, ThroughputTable, read_throughputs

PARITY = {"planner": "published", "solve_on": "event", "allocation_interval_s": 1920.0, "backfill": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options, as written."""

    trace: str
    cluster: str
    throughputs: Path | None
    policies: tuple[str, ...]
    policy_path: Path | None
    round_s: float
    measure: str | None
    seed: int
    form: str
    lenient: bool
    parity: bool
    solve_on: str
    backfill: bool
    tiers: tuple[str, ...]
    tier_shares: str | None
    switch_cost_s: tuple[str, ...]
    consolidation: bool
    packing: bool
    estimate: bool
    outages: tuple[str, ...]
    drains: tuple[str, ...]
    checkpoint_period_s: float

    def said(self) -> dict[str, Any]:
        """What a report says of them: those that are not at rest."""
        told = {name: value for name, value in asdict(self).items() if value not in (None, "", (), False)}
        told |= {"trace": Path(self.trace).name, "measure": self.measure or "all"}
        told |= {name: told[name].name for name in ("throughputs", "policy_path") if name in told}
        if not (self.outages or self.drains or self.estimate):
            del told["checkpoint_period_s"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


class _World(Protocol):
    """A run: the lean one, or that of the whole service."""

    def rounds(self) -> Iterator[object]: ...
    @property
    def completed(self) -> int: ...
    def result(self) -> Replay: ...


def compared(choices: Choices) -> Comparison:
    """Every policy on the same workload; raises InvalidRequest for a mistake in any option before the first run."""
    table = read_throughputs(choices.throughputs) if choices.throughputs else None
    shares = setup.tier_shares_of(choices.tier_shares) if choices.tier_shares else {}
    workload = setup.Workload(
        text=choices.trace,
        table=table,
        form=choices.form,
        is_lenient=choices.lenient,
        seed=choices.seed,
        tier_shares=shares,
    )
    scenarios = [_scenario(choices, policy, table, tuple(shares)) for policy in choices.policies]
    measure = scenarios[0].measure
    seen = setup.survey(workload, measure)
    if seen.skipped:
        typer.echo(f"{len(seen.skipped)} lines skipped; the first is {seen.skipped[0]}", err=True)
    if not seen.measured:
        raise InvalidRequest("measure", f"the trace has {seen.jobs} jobs, and none of those to be measured")
    throughput = setup.rates(seen, table)
    results = {
        each.settings.policy: _run(workload, replace(each, throughput=throughput), seen.measured) for each in scenarios
    }
    cluster = scenarios[0].cluster
    bound_h = makespan_bound_h(seen.at_once, cluster, throughput) if seen.at_once and not choices.packing else None
    tiers = [tier.name for tier in scenarios[0].tiers]
    return Comparison(scenario=choices.said(), replays=results, tiers=tiers, makespan_bound_h=bound_h)


def _scenario(choices: Choices, policy: str, table: ThroughputTable | None, tiers: tuple[str, ...]) -> Scenario:
    registry.load(policy, choices.policy_path)  # a mistake in the last one should not cost the runs before it
    over: dict[str, Any] = {"solve_on": choices.solve_on, "backfill": choices.backfill}
    if choices.parity:  # as the original does, which shuffles for policies that cannot tell types apart
        over = PARITY | ({"planner": "published_shuffled"} if "agnostic=true" in policy else {})
    if table is None and (choices.packing or choices.consolidation):
        raise InvalidRequest("throughputs", "packing and consolidation need the rates of a table; give one")
    cluster = setup.cluster_of(choices.cluster)
    return Scenario(
        cluster=cluster,
        throughput={},
        settings=Settings(policy=policy, policy_path=choices.policy_path, round_duration_s=choices.round_s, **over),
        tiers=setup.tiers_of((*tiers, *choices.tiers)),
        measure=setup.range_of(choices.measure) if choices.measure else None,
        switch_cost_s=setup.costs_of(choices.switch_cost_s),
        spread=ScaledRates(ThroughputTable(rates=table.spread)) if table and choices.consolidation else None,
        beside=table.beside if table and choices.packing else None,
        is_estimated=choices.estimate,
        outages=setup.outages_of(choices.outages, choices.drains, cluster),
        checkpoint_period_s=choices.checkpoint_period_s,
    )


def _run(workload: setup.Workload, scenario: Scenario, count: int) -> Replay:
    is_parity = scenario.settings.planner != "owed"
    load = interior.load if is_parity else partial(registry.load, folder=scenario.settings.policy_path)
    world: _World = (DrivenWorld if scenario.needs_service else LeanWorld)(
        workload.jobs(), scenario, InlineRunner(load)
    )
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(scenario.settings.policy, total=count)
        for index, _ in enumerate(world.rounds()):
            if index % 50 == 0:
                progress.update(task, completed=world.completed)
    return world.result()
