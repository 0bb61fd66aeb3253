"""`gavel simulate --autopilot`: the table of regret, the decisions, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.cli import app

LINES = [f"{index * 300},{9000 if index % 4 == 0 else 300},1" for index in range(12)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trace") / "jobs.csv"
    file.write_text("submit_time_s,duration_s,num_gpus\n" + "\n".join(LINES) + "\n")
    return file


def ran(trace: Path, *options: str) -> Any:
    command = ["simulate", "--trace", str(trace), "--cluster", "a100:3", "--round", "120", *options]
    return CliRunner().invoke(app, command, env={"COLUMNS": "200"})


@pytest.mark.full
def test_the_autopilot_is_compared_with_each_composition_fixed_for_all_of_the_run(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    candidates = ["--candidate", "fifo", "--candidate", "shortest_job_first/backfill=off"]
    flown = ran(trace, "--autopilot", "--goal", "mean_slowdown", "--epoch", "3000", *candidates, "--out", str(out))
    assert flown.exit_code == 0, flown.output
    assert "goal mean_slowdown; regret is the cost over that of the best fixed composition" in flown.output
    decisions = json.loads((out / "decisions.json").read_text())
    assert f"{len(decisions)} decisions, " in flown.output and len(decisions) > 2
    assert {score["composition"] for score in decisions[0]["scores"]} == {"fifo", "shortest_job_first/backfill=false"}
    policies = json.loads((out / "results.json").read_text())["policies"]
    assert list(policies) == ["autopilot", "fifo", "shortest_job_first/backfill=false"]
    regret = {
        line.partition(":")[0]: float(line.split()[-2]) for line in flown.output.splitlines() if "; regret" in line[20:]
    }
    assert min(regret["fifo"], regret["shortest_job_first/backfill=false"]) == 0.0 and regret["autopilot"] < 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--autopilot", "--goal", "mean_jtc"], "did you mean mean_jct?"),
        (["--autopilot", "--candidate", "fifo/plannr=lag"], "did you mean planner?"),
        (["--autopilot", "--policy", "fifo"], "name candidates with --candidate"),
        (["--autopilot", "--measure", "0:5"], "judged by all jobs"),
        (["--autopilot", "--drain", "a100-node-0=0:9"], "leave those out"),
        (["--autopilot", "--candidate", "fifo/space_sharing=true"], "space_sharing needs the rates of a table"),
        (["--candidate", "fifo"], "add --autopilot"),
        (["--length-error", "1", "--outage", "a100-node-0=0:9"], "leave those out"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_first_run(trace: Path, options: list[str], message: str) -> None:
    refused = ran(trace, *options)
    assert refused.exit_code != 0
    assert message in " ".join(refused.output.split())


def test_lengths_that_are_stated_wrongly_change_decisions_but_not_the_jobs(trace: Path) -> None:
    exact, wrong = (ran(trace, "--policy", "shortest_job_first", *extra) for extra in ([], ["--length-error", "2"]))
    bounds = [next(line for line in each.output.splitlines() if "JCT bound" in line) for each in (exact, wrong)]
    means = [next(line for line in each.output.splitlines() if "mean JCT" in line) for each in (exact, wrong)]
    assert bounds[0] == bounds[1] and means[0] != means[1]


@pytest.mark.full
def test_nodes_may_be_away_for_some_of_the_run(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--autopilot", "--goal", "mean_jct", "--epoch", "3000", "--candidate", "fifo", "--candidate", "allox")
    whole = ran(trace, *options)
    lost = ran(trace, *options, "--outage", "a100-node-0=1000:5000", "--out", str(out))
    assert whole.exit_code == lost.exit_code == 0, lost.output
    hours = [
        float(
            next(line for line in each.output.splitlines() if line.startswith("fifo: mean_jct"))
            .split()[2]
            .rstrip(";")
            .replace(",", "")
        )
        for each in (whole, lost)
    ]
    assert hours[1] > hours[0]
    assert len(json.loads((out / "decisions.json").read_text())) > 2
