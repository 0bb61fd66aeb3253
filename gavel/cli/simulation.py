"""What `gavel simulate` does: it reads workload and scenarios from options, runs them, and compares the results."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import Progress

from gavel.cli.connection import settings
from gavel.config import RegionsSection, Settings
from gavel.errors import InvalidRequest
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.simulator import setup
from gavel.simulator.compare import Comparison
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.figures import makespan_bound_h
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.simulator.rules import rules_of
from gavel.types import Cluster, Tier, region_of_type
from workloads.traces.history import Surroundings
from workloads.traces.throughputs import ScaledRates, ThroughputTable, read_throughputs

DEFAULT_CLUSTER = "v100:36,p100:36,k80:36"
PARITY = {
    "round_duration_s": 360.0,
    "planner": "published",
    "solve_on": "event",
    "allocation_interval_s": 1920.0,
    "backfill": False,
    "space_sharing": False,
}
"""Settings of the published mechanism that differ from the service's."""

_MORE = "--drain, a monthly limit of a tier, minimum_run_s, regions, or jobs that wait for others; leave those out"
BUT_OUTAGES = f"with --estimate, {_MORE}"
WITH_THE_SERVICE = f"with --estimate, --outage, {_MORE}"
"""What only the whole service can simulate, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options as written. None, or no policy: the service's setting."""

    trace: str
    cluster: str | None
    throughputs: Path | None
    policies: tuple[str, ...]
    policy_dir: Path | None
    round_s: float | None
    measure: str | None
    seed: int
    form: str
    lenient: bool
    parity: bool
    solve_on: str | None
    planner: str | None
    backfill: bool | None
    tiers: tuple[str, ...]
    tier_shares: str | None
    within_user: str | None
    switch_cost_s: tuple[str, ...]
    consolidation: bool
    packing: bool | None
    estimate: bool
    outages: tuple[str, ...]
    drains: tuple[str, ...]
    checkpoint_period_s: float
    checkpoint_bytes: int = 0
    length_error: float = 0.0

    def scenario(self) -> dict[str, Any]:
        """Return the options that were given, without the service's settings and without folders."""
        options = {name: value for name, value in asdict(self).items() if value not in (None, "", (), False)}
        for rule in ("policies", "policy_dir", "round_s", "solve_on", "planner", "backfill", "packing"):
            options.pop(rule, None)
        options |= {"trace": Path(self.trace).name, "measure": self.measure or "all"}
        options |= {"cluster": self.cluster or "the exported cluster"}
        if self.throughputs:
            options["throughputs"] = self.throughputs.name
        if not (self.outages or self.drains or self.estimate):
            del options["checkpoint_period_s"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}

    def settings(self, policy: str) -> Settings:
        """Return the service's settings here (gavel.toml, environment) with this policy and the options."""
        shuffled = {"planner": "published_shuffled"} if "agnostic=true" in policy else {}  # as the original does
        options = {
            "policy_dir": self.policy_dir,
            "round_duration_s": self.round_s,
            "solve_on": self.solve_on,
            "planner": self.planner,
            "backfill": self.backfill,
            "space_sharing": self.packing,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return settings(policy=policy, planning_lead_fraction=0.0, **(PARITY | shuffled if self.parity else {}) | given)


RENAMED = {"policy": "policies", "tier": "tiers", "outage": "outages", "drain": "drains"}
REPEATED = frozenset(["policies", "tiers", "switch_cost_s", "outages", "drains"])


def choices_of(options: Mapping[str, Any]) -> Choices:
    """Return the options of the command as they were written, by their names there; those of no simulation are left."""
    named = {RENAMED.get(name, name): value for name, value in options.items()}
    values: dict[str, Any] = {field.name: named[field.name] for field in fields(Choices)}
    values |= {name: tuple(values[name] or ()) for name in REPEATED}
    return Choices(**values)


def with_defaults(options: Mapping[str, Any]) -> Choices:
    """Return the choices of a command that has some options of `simulate` only; all others are as left out there."""
    none = dict.fromkeys((field.name for field in fields(Choices)), None)
    flags = dict.fromkeys(("lenient", "parity", "consolidation", "estimate"), False)
    lists = dict.fromkeys(REPEATED, ())
    return Choices(**{**none, **flags, **lists, "checkpoint_period_s": 3600.0, **options})


class World(Protocol):
    """A run: the lean simulation, that of the whole service, or one under the autopilot."""

    def rounds(self) -> Iterator[object]:
        """Go from round to round."""

    @property
    def completed(self) -> int:
        """Return how many measured jobs have ended so far."""

    def result(self) -> SimulationOutcome:
        """Return the outcome so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the options mean: the workload, and the scenario of each policy that was asked for."""

    choices: Choices
    workload: setup.Workload
    survey: setup.Survey
    scenarios: tuple[Scenario, ...]
    table: ThroughputTable | None

    def comparison(self, outcomes: dict[str, SimulationOutcome], scenarios: Sequence[Scenario]) -> Comparison:
        """Return the comparison of these runs, which had these scenarios."""
        first, survey = self.scenarios[0], self.survey
        is_bounded = survey.at_once and not any(each.colocated for each in scenarios)
        return Comparison(
            scenario=self.choices.scenario(),
            rules=rules_of(scenarios),
            left_out=survey.left_out,
            outcomes=outcomes,
            tiers=[tier.name for tier in first.tiers],
            makespan_bound_h=makespan_bound_h(survey.at_once, first.cluster, first.throughput) if is_bounded else None,
        )


def service_policy(folder: Path | None) -> str:
    """Return the policy of the service's settings here, in its one spelling."""
    return registry.canonical(settings().policy, folder)


def compared(choices: Choices) -> Comparison:
    """Return every policy's run on the same workload. Raise InvalidRequest for a mistake before the first run."""
    ready = prepared(choices, choices.policies or (settings().policy,))
    outcomes = {
        each.settings.policy: run(world_of(ready.workload, each), each.settings.policy, ready.survey.measured)
        for each in ready.scenarios
    }
    return ready.comparison(outcomes, ready.scenarios)


def prepared(choices: Choices, policies: Sequence[str]) -> Prepared:
    """Return what the options mean with these policies. Raise InvalidRequest for a mistake."""
    table = read_throughputs(choices.throughputs) if choices.throughputs else None
    shares = setup.tier_shares_of(choices.tier_shares) if choices.tier_shares else {}
    workload = setup.Workload(
        text=choices.trace,
        table=table,
        form=choices.form,
        is_lenient=choices.lenient,
        seed=choices.seed,
        tier_shares=shares,
        length_error=choices.length_error,
    )
    around = workload.surroundings()
    if choices.cluster is None and around.cluster is None:
        choices = replace(choices, cluster=DEFAULT_CLUSTER)
    scenarios = [_scenario(choices, policy, table, tuple(shares), around) for policy in policies]
    cluster, measure = scenarios[0].cluster, scenarios[0].measure
    workload = replace(workload, capacity_workers=cluster.capacity_workers())
    survey = setup.survey(workload, measure)
    for note in survey.left_out:
        typer.echo(note, err=True)
    throughput = setup.rates(survey, table)
    ready = Prepared(
        choices=choices,
        workload=workload,
        survey=survey,
        scenarios=tuple(
            replace(each, throughput=throughput, needs_driver=survey.needs_driver, is_elastic=survey.is_elastic)
            for each in scenarios
        ),
        table=table,
    )
    if choices.length_error and survey.is_elastic:
        raise InvalidRequest("length-error", "cannot be simulated with elastic jobs or execution plans; leave it out")
    if choices.length_error and any(each.needs_service for each in ready.scenarios):
        raise InvalidRequest("length-error", f"cannot be simulated {WITH_THE_SERVICE}")
    return ready


def _within_users(tiers: tuple[Tier, ...], order: str | None) -> tuple[Tier, ...]:
    """Return the tiers, the jobs of one user sharing so in each, if it is given. Raise InvalidRequest."""
    if order is None:
        return tiers
    if order not in registry.WITHIN_USER:
        raise InvalidRequest("within_user", f"is {order}; give one of {', '.join(registry.WITHIN_USER)}")
    return tuple(replace(tier, within_user=order) for tier in tiers)


def _scenario(
    choices: Choices, policy: str, table: ThroughputTable | None, tiers: tuple[str, ...], around: Surroundings
) -> Scenario:
    rules = choices.settings(policy)
    registry.load(policy, rules.policy_dir)  # a mistake in the last one should not cost the runs before it
    if table is None:
        if choices.packing or choices.consolidation:
            raise InvalidRequest("throughputs", "packing and consolidation need the rates of a table; give one")
        rules = rules.model_copy(update={"space_sharing": False})
    cluster = setup.cluster_of(choices.cluster) if choices.cluster else around.cluster or Cluster()
    if rules.regions is None and any(region_of_type(name) for name in cluster.accelerator_types):
        rules = rules.model_copy(update={"regions": RegionsSection.model_validate({})})
    all_tiers = _within_users(setup.tiers_of((*tiers, *choices.tiers), around.tiers), choices.within_user)
    registry.check_objectives(policy, all_tiers)
    return Scenario(
        cluster=cluster,
        throughput={},
        settings=rules,
        tiers=all_tiers,
        measure=setup.range_of(choices.measure) if choices.measure else None,
        switch_cost_s=setup.costs_of(choices.switch_cost_s),
        spread=ScaledRates(ThroughputTable(rates=table.spread)) if table and choices.consolidation else None,
        colocated=table.colocated if table and rules.space_sharing else None,
        is_estimated=choices.estimate,
        outages=setup.outages_of(choices.outages, choices.drains, cluster),
        checkpoint_period_s=choices.checkpoint_period_s,
        checkpoint_bytes=choices.checkpoint_bytes or None,
    )


def world_of(workload: setup.Workload, scenario: Scenario) -> World:
    """Return the lean simulation of the scenario, or that of the whole service where only that can run it."""
    return (DrivenWorld if scenario.needs_service else LeanWorld)(workload.jobs(), scenario, runner_of(scenario))


def runner_of(scenario: Scenario) -> InlineRunner:
    """Return a runner of the policies that the scenario's settings know."""
    return InlineRunner(partial(registry.load, folder=scenario.settings.policy_dir))


def run(world: World, name: str, count: int) -> SimulationOutcome:
    """Run the world until its end, and show its progress on a terminal: of `count` jobs."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(name, total=count)
        for index, _ in enumerate(world.rounds()):
            if index % 50 == 0:
                progress.update(task, completed=world.completed)
    return world.result()
