"""The command `gavel search-priority`: weights of the priority rule for one's own history; needs no service."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gavel.cli.connection import Json, app, refusals
from gavel.cli.simulate import (
    ClusterText,
    Form,
    GoalText,
    LengthError,
    Lenient,
    Measure,
    RoundS,
    Seed,
    Throughputs,
    Trace,
)

if TYPE_CHECKING:
    from gavel.autopilot.search import Proof

DEFAULT_TRIALS = 96
Trials = Annotated[int, typer.Option(min=12, max=10_000, help="Weightings to try, each a simulation.")]


@app.command("search-priority")
def search_priority(  # noqa: PLR0913  one option per thing to choose
    *,
    trace: Trace,
    cluster: ClusterText = None,
    throughputs: Throughputs = None,
    round_s: RoundS = None,
    measure: Measure = None,
    goal: GoalText = "mean_jct",
    trials: Trials = DEFAULT_TRIALS,
    length_error: LengthError = 0.0,
    seed: Seed = 0,
    form: Form = "",
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Search weights of the policy weighted_priority on the first part of a history, and prove them on the rest.

    gavel search-priority --trace jobs.jsonl --round 360 --goal mean_slowdown
    """
    options = dict(locals())
    from gavel.autopilot import goals
    from gavel.autopilot.search import searched

    with refusals():
        jobs, scenario, runner = _history(options)
        proof = searched(jobs, scenario, goals.read(goal), runner, trials=trials, seed=seed)
    typer.echo(json.dumps(_record(proof)) if as_json else "\n".join(_lines(proof)))


def _history(options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the jobs, the scenario and a runner, as `gavel simulate` would have them."""
    from gavel.cli.connection import settings
    from gavel.cli.simulation import WITH_THE_SERVICE, prepared, runner_of, with_defaults
    from gavel.errors import InvalidRequest
    from gavel.simulator.setup import range_of

    names = ("trace", "cluster", "throughputs", "round_s", "length_error", "seed", "form", "lenient")
    ready = prepared(with_defaults({name: options[name] for name in names}), (settings().policy,))
    scenario = ready.scenarios[0]
    if scenario.is_beyond_lean:
        raise InvalidRequest("trace", f"cannot be searched {WITH_THE_SERVICE}")
    jobs = list(ready.workload.jobs())
    first, last = range_of(options["measure"]) if options["measure"] else (0, len(jobs))
    return jobs[first:last], scenario, runner_of(scenario)


def _record(proof: "Proof") -> dict[str, Any]:
    derived = {"best_fixed": proof.best_fixed, "gain": proof.gain, "is_proved": proof.is_proved}
    return asdict(proof) | derived


def _lines(proof: "Proof") -> list[str]:
    """Return the figures and the conclusion, a line each."""
    from gavel.autopilot.search import MARGIN

    head = f"goal {proof.goal}; cost on the {proof.searched_jobs} jobs searched, on the {proof.proved_jobs} after them"
    rows = [f"{name}: {proof.searched[name]:.4f}, {proof.proved[name]:.4f}" for name in proof.proved]
    figure = f"{100 * proof.gain:+.1f} % against {proof.best_fixed}, the best fixed policy there"
    if proof.is_proved:
        return [head, *rows, f"proved: {figure}. Compare it in the autopilot with --candidate '{proof.rule}'"]
    return [head, *rows, f"not proved: {figure}; {100 * MARGIN:g} % are wanted. Keep the fixed policy"]
