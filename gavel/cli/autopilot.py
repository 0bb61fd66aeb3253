"""What `gavel simulate --autopilot` does: a run under the autopilot, and one under each composition, compared."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gavel.autopilot import composition, goals
from gavel.autopilot.composition import Composition
from gavel.autopilot.decision import Decision
from gavel.autopilot.hindsight import Hindsight, hindsight
from gavel.autopilot.objectives import with_objectives
from gavel.autopilot.pilot import Flight, Pilot
from gavel.autopilot.setting import CANDIDATES
from gavel.cli.connection import settings
from gavel.cli.simulation import BUT_OUTAGES, Choices, Prepared, prepared, run, runner_of
from gavel.errors import InvalidRequest
from gavel.policies.registry import check_objectives
from gavel.simulator.compare import Comparison
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario

NAME = "autopilot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """The options of the autopilot as written. No candidates: the service's policy and CANDIDATES."""

    goal: str
    candidates: tuple[str, ...]
    epoch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flown:
    """The runs compared, the regret of each for the goal, and the decisions with the CPU seconds that each took."""

    comparison: Comparison
    goal: str
    hindsight: dict[str, Hindsight]
    decisions: Sequence[Decision]
    decision_s: Sequence[float]

    @property
    def lines(self) -> list[str]:
        """Return what the autopilot did, a line each."""
        switches = sum(each.chosen != each.incumbent for each in self.decisions)
        p50, p95 = np.quantile(self.decision_s or [0.0], [0.5, 0.95]).tolist()
        table = [f"{name}: {_text(each)}" for name, each in self.hindsight.items()]
        head = f"goal {self.goal}; regret is the cost over that of the best fixed composition in hindsight"
        took = (
            f"{len(self.decisions)} decisions, {switches} switches; CPU s of a decision: p50 {p50:.2g}, p95 {p95:.2g}"
        )
        return [head, *table, took]

    def write(self, out: Path) -> None:
        """Write the decisions into `decisions.json` of the folder."""
        records = [asdict(each) for each in self.decisions]
        (out / "decisions.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def flown(choices: Choices, wanted: Goals) -> Flown:
    """Return the run under the autopilot and one under each candidate. Raise InvalidRequest for a mistake."""
    if choices.policies:
        raise InvalidRequest("policy", "the autopilot chooses it; name candidates with --candidate")
    if choices.measure:
        raise InvalidRequest("measure", "the autopilot is judged by all jobs; leave it out")
    goal = goals.read(wanted.goal)
    ready = prepared(choices, (settings().policy,))
    base, candidates = _base(ready, wanted)
    goals.check_tier(goal, [tier.name for tier in base.tiers])
    flight = Flight(
        goal=goal,
        candidates=tuple(each.text for each in candidates),
        epoch_s=wanted.epoch_s,
        seed=choices.seed,
    )
    pilot = Pilot(ready.workload.jobs(), base, runner_of(base), flight, time.process_time)
    scenarios = {each.text: replace(base, settings=each.settings(base.settings)) for each in candidates}
    count = ready.survey.measured
    outcomes = {NAME: run(pilot, NAME, count)} | {
        text: run(LeanWorld(ready.workload.jobs(), each, runner_of(each)), text, count)
        for text, each in scenarios.items()
    }
    return Flown(
        comparison=ready.comparison(outcomes, list(scenarios.values())),
        goal=goal.text,
        hindsight=hindsight(goal, NAME, outcomes),
        decisions=pilot.decisions,
        decision_s=pilot.decision_s,
    )


def _base(ready: Prepared, wanted: Goals) -> tuple[Scenario, tuple[Composition, ...]]:
    """Return the scenario that all runs have but for their compositions, and those, each once."""
    base = ready.scenarios[0]
    drains = [each for each in base.outages if each.is_drain]
    if replace(base, outages=drains).is_beyond_lean:
        raise InvalidRequest("autopilot", f"cannot be simulated {BUT_OUTAGES}")
    texts = wanted.candidates or (base.settings.policy, *CANDIDATES, *with_objectives(base.tiers))
    candidates = tuple(dict.fromkeys(composition.read(text, base.settings) for text in texts))
    for each in candidates:
        check_objectives(each.policy, base.tiers)
    if any(each.settings(base.settings).space_sharing for each in candidates):
        if ready.table is None:
            raise InvalidRequest("throughputs", "space_sharing needs the rates of a table; give one")
        base = replace(base, colocated=ready.table.colocated)
    return base, candidates


def _text(of: Hindsight) -> str:
    measures = ", ".join(f"{name} {value:,.4g}" for name, value in of.measures.items())
    return f"{measures}; regret {100 * of.regret:+.1f} %"
