"""Candidates for tiers that leave their objective open; the autopilot chooses among them, and never beyond."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.autopilot.objectives import OBJECTIVES, with_objectives
from gavel.cli import app
from gavel.types import Tier
from gavel.types.tier_objectives import AUTO, chosen_by
from tests.builders import a_cluster
from tests.simulator.test_lean import a_trace_job
from workloads.traces.history import Surroundings, lines_of

AUTOMATIC = Tier(name="gold", objective=AUTO)
LONG_S, EPOCH_S, ROUND_S = 9000, 600, 60


def test_each_objective_is_a_candidate_for_each_automatic_tier_and_for_all() -> None:
    assert with_objectives([Tier(name="free", objective="fifo")]) == ()
    one = with_objectives([AUTOMATIC, Tier(name="free", objective="fifo")])
    assert len(one) == len(OBJECTIVES) and "hierarchical" in one and "hierarchical?objectives=gold:speed" in one
    two = with_objectives([AUTOMATIC, Tier(name="lab", objective=AUTO)])
    assert "hierarchical?objectives=gold:fifo,lab:fifo" in two and len(two) == 3 * (len(OBJECTIVES) - 1) + 1
    assert all(len(set(chosen_by(each).values())) <= 1 for each in two)


@pytest.mark.full
def test_the_autopilot_chooses_the_objective_of_an_automatic_tier(tmp_path: Path) -> None:
    """Two users, one with long jobs: shortest first ends the tier's jobs soonest, and fairness is where it begins."""

    def gold(place: int) -> dict[str, Any]:
        return {"tier": "gold", "user": f"user-{place}", "throughput_steps_per_s": {"a100": 1.0}}

    trace, out = tmp_path / "jobs.jsonl", tmp_path / "out"
    jobs = [a_trace_job(place, "k", LONG_S if place < 2 else 300, 60.0 * place, **gold(place)) for place in range(14)]
    cluster = a_cluster(a100=1)
    trace.write_text("".join(lines_of(jobs, Surroundings(cluster=cluster, tiers=(AUTOMATIC,)))))
    candidates = ["--candidate=hierarchical", "--candidate=hierarchical?objectives=gold:shortest_job_first"]
    options = ["--autopilot", "--epoch", str(EPOCH_S), "--round", str(ROUND_S), *candidates, "--out", str(out)]
    flown = CliRunner().invoke(app, ["simulate", "--trace", str(trace), *options], env={"COLUMNS": "200"})
    assert flown.exit_code == 0, flown.output
    decisions = json.loads((out / "decisions.json").read_text())
    assert decisions[-1]["chosen"] == "hierarchical?objectives=gold:shortest_job_first"
    options = ["--policy", "hierarchical?objectives=default:speed"]
    refused = CliRunner().invoke(app, ["simulate", "--trace", str(trace), *options])
    assert refused.exit_code != 0 and "set that to auto first" in " ".join(refused.output.split())
