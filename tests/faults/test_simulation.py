"""Seeds of the simulation of faults: everything holds, each seed is one run, and planted bugs are noticed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from gavel.faults.drawing import draw
from gavel.faults.program import app
from gavel.faults.records import as_json, scenario_of
from gavel.faults.scenario import FaultKind, Scenario
from gavel.faults.search import run_seed, run_seeds, silenced
from gavel.faults.shrinking import least, shrink
from gavel.faults.world import run
from tests.faults.planted import PLANTED, SURVIVORS
from tests.faults.scenes import FOLLOWED_UNREACHED, NOTICED_IN, UNREACHED

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
SEEDS = range(0, 1000) if IS_FULL else range(0, 9)
PROCESSES = 2 if IS_FULL else 1
KILLED_WITHIN = 500
PLAIN, DURABLE = 2, 46  # seeds whose store is in memory, and SQLite on a file; neither needs the solver


@pytest.mark.timeout(1800 if IS_FULL else 400)
def test_no_seed_violates_an_invariant() -> None:
    failed = {each.seed: each.violation for each in run_seeds(SEEDS.start, SEEDS.stop, PROCESSES) if each.violation}
    assert failed == {}


@pytest.mark.timeout(400)
def test_a_seed_is_always_the_same_run_in_any_process() -> None:
    """Also where the order of sets is another one, and where other seeds have run before."""
    show = f"from gavel.faults.search import run_seed; print(*(run_seed(s).digest for s in ({PLAIN}, {DURABLE})))"
    here = [run_seed(PLAIN).digest, run_seed(DURABLE).digest]
    ran = subprocess.run(
        [sys.executable, "-c", show],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert ran.stdout.split() == here
    assert run_seed(PLAIN).digest == here[0] != run_seed(DURABLE + 1).digest


def test_faults_of_every_kind_are_drawn_and_scenarios_survive_json() -> None:
    scenarios = [draw(seed) for seed in range(300)]
    assert {fault.kind for each in scenarios for fault in each.faults} == set(FaultKind)
    assert all(scenario_of(as_json(each)) == each for each in scenarios[:20])
    assert any(each.is_durable for each in scenarios) and any(not each.faults for each in scenarios)


KILLED_BY = {
    "a_job_does_not_wait_for_those_that_come_first": 6,
    "a_tier_goes_on_when_its_month_is_used": 146,
    "an_audit_entry_is_forgotten": 1,
    "a_new_gang_does_not_wait_for_the_old_one": 53,
    "a_key_is_forgotten": 3,
    "a_cancellation_is_overwritten": 9,
    "a_request_that_another_part_of_the_process_has_read_is_overlooked": 92,
    "time_after_an_end_that_nobody_saw_is_kept": 43,
    "tiers_are_charged_time_that_is_taken_back": 3,
}
"""Seeds that notice a bug, for the small profile; the full one searches for one for each bug."""
SEARCHED = PLANTED.keys() - SURVIVORS.keys() - NOTICED_IN.keys()
TO_KILL = sorted(dict.fromkeys(SEARCHED, 0).items()) if IS_FULL else list(KILLED_BY.items())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "seed"), TO_KILL)
def test_a_planted_bug_is_noticed(name: str, seed: int) -> None:
    seeds = range(1, KILLED_WITHIN) if IS_FULL else (seed,)
    with PLANTED[name]():
        outcomes = (run_seed(each) for each in seeds)
        assert next((each for each in outcomes if each.violation), None) is not None


@pytest.mark.parametrize("name", NOTICED_IN)
def test_a_planted_bug_that_seeds_meet_rarely_is_noticed_where_it_matters(name: str) -> None:
    seed, scenario = NOTICED_IN[name]
    with silenced():
        assert run(replace(scenario, seed=seed)).violation is None
        with PLANTED[name]():
            assert run(replace(scenario, seed=seed)).violation is not None


@pytest.mark.parametrize("scenario", [UNREACHED, FOLLOWED_UNREACHED], ids=["", "also after a take-over"])
def test_a_job_leaves_a_region_whose_cluster_does_not_answer(scenario: Scenario) -> None:
    """It starts in the other region once its lease in the first one is over."""
    with silenced():
        outcome = run(scenario, keeps_lines=True)
    assert outcome.violation is None
    there = [line.split() for line in outcome.lines if line.endswith("started")]
    assert [(node, generation) for _, node, _, _, generation, _ in there] == [("node-0", "1"), ("node-1", "2")]
    assert 20.0 < float(there[-1][0]) < 100.0


@pytest.mark.full
def test_a_failing_scenario_shrinks_to_what_fails_in_the_same_way() -> None:
    name = "a_new_gang_does_not_wait_for_the_old_one"
    with PLANTED[name]():
        scenario = draw(KILLED_BY[name])
        violation = run(scenario).violation
        assert violation is not None
        smaller = shrink(scenario, violation.name)
        again = run(smaller).violation
    assert again is not None and again.name == violation.name
    assert len(smaller.requests) <= len(scenario.requests) and len(smaller.faults) <= len(scenario.faults)
    assert run(smaller).violation is None, "it is the bug that fails"


def test_the_least_list_keeps_only_what_is_needed() -> None:
    assert list(least(range(100), lambda part: {3, 97} <= set(part))) == [3, 97]
    assert list(least([1, 2], lambda part: True)) == []


def test_the_command_runs_replays_and_shrinks() -> None:
    runner = CliRunner()
    ran = runner.invoke(app, ["run", "--seeds", "4:6", "--processes", "1"])
    assert ran.exit_code == 0 and "2 seeds, 0 failed" in ran.output
    replayed = runner.invoke(app, ["replay", "4"])
    assert replayed.exit_code == 0 and "commits" in replayed.output
    assert "violates nothing" in runner.invoke(app, ["shrink", "4"]).output
    with PLANTED["an_audit_entry_is_forgotten"]():
        failed = runner.invoke(app, ["run", "--seeds", "1:2", "--processes", "1"])
        assert failed.exit_code == 1 and "seed 1: I13_audit" in failed.output
        shrunk = runner.invoke(app, ["shrink", "1"])
        assert shrunk.exit_code == 0 and '"seed": 1' in shrunk.output
    assert runner.invoke(app, ["run", "--seeds", "9"]).exit_code == 2
    assert runner.invoke(app, ["replay", "no-such"]).exit_code == 2
