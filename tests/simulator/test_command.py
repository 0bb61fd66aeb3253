"""`gavel simulate` as a user runs it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.cli.policy_table import COMPARED
from gavel.client import Client
from gavel.config import Settings
from gavel.policies import fifo as first_come
from gavel.simulator.setup import Workload
from gavel.types import Scope
from tests.api.conftest import Service, service

__all__ = ["service"]

CSV = "submit_time_s,duration_s,num_gpus,user\n" + "".join(
    f"{60 * index},{400 + 170 * (index % 5)},{1 + index % 2},user-{index % 3}\n" for index in range(20)
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


def simulated(trace: Path, out: Path, *more: str) -> tuple[int, str]:
    arguments = ["simulate", "--trace", str(trace), "--cluster", "a100:2,t4:2", "--round", "60", "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, *more])
    return result.exit_code, result.output


def test_policies_are_compared_in_a_table_a_json_and_a_page(trace: Path, tmp_path: Path) -> None:
    code, output = simulated(trace, tmp_path / "out", "--policy", "fifo", "--policy", "equal_share")
    assert code == 0 and "mean JCT h" in output and "fifo" in output
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(content["policies"]) == {"fifo", "equal_share"}
    for result in content["policies"].values():
        assert len(result["jobs"]) == 20 and 0 < result["utilisation"] <= 1
        assert result["figures"]["mean_jct_h"] >= result["figures"]["jct_floor_h"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") >= 6 and "http" not in page and "<script" not in page


def test_every_usual_policy_has_a_line_the_best_in_the_mean_first(trace: Path, tmp_path: Path) -> None:
    code, output = simulated(trace, tmp_path / "out", "--compare")
    assert code == 0, output
    content = json.loads((tmp_path / "out" / "results.json").read_text())["policies"]
    assert set(content) == set(COMPARED) and "hierarchical (the service's)" in output
    by_mean = sorted(content, key=lambda policy: (content[policy]["figures"]["mean_jct_h"], policy))
    lines = [line.strip(" │").split()[0] for line in output.splitlines() if line.startswith("│")]
    assert lines == by_mean
    assert by_mean[0] in output.splitlines()[-2] and "least mean JCT here" in output


def test_a_comparison_is_of_the_policies_that_are_named_and_the_service_s(trace: Path, tmp_path: Path) -> None:
    code, output = simulated(trace, tmp_path / "out", "--compare", "--policy", "fifo?backfill=true")
    content = json.loads((tmp_path / "out" / "results.json").read_text())["policies"]
    assert code == 0 and list(content) == ["hierarchical", "fifo"]
    code, output = simulated(trace, tmp_path / "out", "--compare", "--policy", "nothing")
    assert code != 0 and "there is no 'nothing'" in output
    code, output = simulated(trace, tmp_path / "out", "--compare", "--autopilot")
    assert code != 0 and "leave out --autopilot" in output


def test_the_verdict_names_what_the_best_policy_changes(trace: Path, tmp_path: Path) -> None:
    content = {}
    for name in ("fifo", "shortest_job_first"):
        assert simulated(trace, tmp_path / name, "--policy", name)[0] == 0
        content[name] = results(tmp_path / name)["figures"]["mean_jct_h"]
    assert content["shortest_job_first"] < content["fifo"]
    runner = CliRunner(env={"GAVEL_POLICY": "fifo"})
    arguments = ["simulate", "--trace", str(trace), "--cluster", "a100:2,t4:2", "--round", "60", "--compare"]
    output = runner.invoke(app, [*arguments, "--policy", "shortest_job_first"]).output
    percent = f"{1 - content['shortest_job_first'] / content['fifo']:.1%} below the service's fifo"
    assert "shortest_job_first has the least mean JCT here" in output and percent in " ".join(output.split())


def test_the_same_seed_gives_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert simulated(trace, tmp_path / name, "--policy", "max_min_fairness", "--switch-cost-s", "5")[0] == 0
    for file in ("results.json", "report.html"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_without_backfill_jobs_wait_for_the_boundary(trace: Path, tmp_path: Path) -> None:
    for name, more in (("at-once", []), ("waits", ["--no-backfill"])):
        assert simulated(trace, tmp_path / name, "--policy", "fifo", *more)[0] == 0
    at_once, waits = (results(tmp_path / name)["figures"]["mean_jct_h"] for name in ("at-once", "waits"))
    assert at_once < waits


def test_only_measured_jobs_are_in_the_result(trace: Path, tmp_path: Path) -> None:
    assert simulated(trace, tmp_path / "out", "--policy", "fifo", "--measure", "5:9")[0] == 0
    (result,) = json.loads((tmp_path / "out" / "results.json").read_text())["policies"].values()
    assert [job["name"] for job in result["jobs"]] == [f"job-{line}" for line in range(7, 11)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--policy", "nothing"], "there is no 'nothing'"),
        (["--cluster", "a100"], "cluster: cannot read 'a100'"),
        (["--measure", "50:60"], "measure: 50:60 reaches beyond the trace, which has 20 jobs"),
        (["--measure", "15:21"], "measure: 15:21 reaches beyond the trace, which has 20 jobs"),
        (["--packing"], "throughputs: packing and consolidation need the rates of a table; give one"),
        (["--outage", "t4-node-7=1:2"], "outage: there is no node 't4-node-7'"),
        (["--tier-shares", "gold"], "tier-shares: cannot read 'gold'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(trace: Path, tmp_path: Path, more: list[str], message: str) -> None:
    code, output = simulated(trace, tmp_path / "out", *more)
    assert code == 2 and message in output and "Traceback" not in output


def test_a_bad_line_ends_it_unless_lenient(trace: Path, tmp_path: Path) -> None:
    trace.write_text(CSV + "x,1,1,ann\n", encoding="utf-8")
    code, output = simulated(trace, tmp_path / "out", "--policy", "fifo")
    assert code == 2 and "jobs.csv, line 22: submit_time_s is 'x'" in output
    code, output = simulated(trace, tmp_path / "out", "--policy", "fifo", "--lenient")
    assert code == 0 and "1 lines skipped; the first is line 22" in output


@pytest.mark.full
def test_the_services_own_rules_are_in_force_unless_an_option_sets_another(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["simulate", "--trace", str(trace), "--cluster", "a100:2,t4:2", "--out"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    rules = json.loads((tmp_path / "out" / "results.json").read_text())["rules"]
    unlike = [name for name, rule in rules.items() if not rule["is_service_default"]]
    assert set(unlike) == {"space_sharing", "planning_lead_fraction"}  # without a table no pair has a rate
    for name, field in Settings.model_fields.items():
        assert name not in rules or rules[name]["service_default"] == field.default
    assert rules["policy"]["value"] == Settings().policy and rules["round_duration_s"]["value"] == 10.0
    assert "rules: policy hierarchical; round_duration_s 10; solve_on change;" in result.output
    unlike_line = "unlike the service's defaults: space_sharing off (there on); planning_lead_fraction 0 (there 0.25)"
    assert unlike_line in result.output

    monkeypatch.setenv("GAVEL_MINIMUM_LEASE_FRACTION", "0.5")
    options = ["--round", "60", "--policy", "fifo", "--policy", "equal_share", "--solve-on", "event", "--no-backfill"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "other"), *options, "--planner", "published"])
    assert result.exit_code == 0, result.output
    rules = json.loads((tmp_path / "other" / "results.json").read_text())["rules"]
    assert {name: rule["value"] for name, rule in rules.items() if not rule["is_service_default"]} == {
        "policy": ["fifo", "equal_share"],
        "round_duration_s": 60.0,
        "solve_on": "event",
        "planner": "published",
        "backfill": False,
        "minimum_lease_fraction": 0.5,
        "space_sharing": False,
        "planning_lead_fraction": 0.0,
    }
    assert "policy fifo, equal_share (there hierarchical)" in result.output


def test_parity_is_the_published_mechanism_unless_an_option_sets_another(trace: Path, tmp_path: Path) -> None:
    arguments = ["simulate", "--trace", str(trace), "--cluster", "a100:4", "--parity", "--policy", "fifo"]
    for more, round_s in (([], 360.0), (["--round", "30"], 30.0)):
        out = tmp_path / f"{round_s}"
        assert CliRunner().invoke(app, [*arguments, "--out", str(out), *more]).exit_code == 0
        rules = {name: rule["value"] for name, rule in json.loads((out / "results.json").read_text())["rules"].items()}
        assert (rules["planner"], rules["solve_on"], rules["backfill"]) == ("published", "event", False)
        assert (rules["round_duration_s"], rules["allocation_interval_s"]) == (round_s, 1920.0)


def test_a_gang_larger_than_any_type_is_named_as_such_or_skipped_and_counted(trace: Path, tmp_path: Path) -> None:
    trace.write_text(CSV + "1300,50,3,ann\n1310,50,2,ann\n1320,50,16,ann\n", encoding="utf-8")
    code, output = simulated(trace, tmp_path / "out", "--policy", "fifo")
    assert code == 2
    assert "job job-22 is a gang of 3 workers, larger than any type: the largest, a100, has 2" in output
    code, output = simulated(trace, tmp_path / "out", "--policy", "fifo", "--lenient")
    assert code == 0 and "2 jobs larger than any type skipped; the first is job job-22 is a gang of 3" in output
    assert [job["name"] for job in results(tmp_path / "out")["jobs"]][-2:] == ["job-21", "job-23"]
    (note,) = json.loads((tmp_path / "out" / "results.json").read_text())["left_out"]
    assert note in (tmp_path / "out" / "report.html").read_text()
    code, output = simulated(trace, tmp_path / "out", "--policy", "fifo", "--lenient", "--measure", "0:22")
    assert code == 2 and "which has 21 jobs" in output


RATES = {
    name: {
        f"('{kind}', {size})": {"null": rate * size, f"('{other}', {size})": [0.8 * rate * size, 0.7 * of_other * size]}
        for kind, rate, other, of_other in (("steep", 4.0 / slow, "flat", 1.0), ("flat", 1.0, "steep", 4.0 / slow))
        for size in (1, 2)
    }
    for name, slow in (("a100", 1.0), ("t4", 3.0))
}


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(RATES), encoding="utf-8")
    return path


def results(out: Path) -> dict[str, Any]:
    (result,) = json.loads((out / "results.json").read_text())["policies"].values()
    return dict(result)


def test_jobs_that_may_share_workers_end_sooner(trace: Path, rates: Path, tmp_path: Path) -> None:
    options = ["--throughputs", str(rates), "--policy", "max_total_relative_speed", "--solve-on", "change"]
    assert simulated(trace, tmp_path / "alone", *options, "--no-packing")[0] == 0
    assert simulated(trace, tmp_path / "packed", *options)[0] == 0
    alone, packed = results(tmp_path / "alone"), results(tmp_path / "packed")
    assert alone["leases_packed"] == 0 < packed["leases_packed"]
    assert packed["figures"]["mean_jct_h"] < 0.9 * alone["figures"]["mean_jct_h"]
    assert any(job["packed_s"] > 0 for job in packed["jobs"]) and 0 < packed["utilisation"] <= 1


@pytest.mark.full
def test_throughputs_can_be_hidden_and_nodes_fail(trace: Path, rates: Path, tmp_path: Path) -> None:
    """Through the whole service: what it has to measure costs time, and so does a node that goes away."""
    options = ["--throughputs", str(rates), "--policy", "max_min_fairness", "--measure", "0:12"]
    for name, more in (
        ("known", ["--drain", "t4-node-0=1e7:2e7"]),
        ("hidden", ["--estimate"]),
        ("lost", ["--outage", "a100-node-0=300:2000", "--checkpoint-period", "60"]),
    ):
        assert simulated(trace, tmp_path / name, *options, *more)[0] == 0
    stated, hidden, lost = (results(tmp_path / name) for name in ("known", "hidden", "lost"))
    assert [len(each["jobs"]) for each in (stated, hidden, lost)] == [12, 12, 12]
    assert lost["figures"]["mean_jct_h"] > 1.1 * stated["figures"]["mean_jct_h"]
    assert [each["jct_s"] for each in hidden["jobs"]] != [each["jct_s"] for each in stated["jobs"]]
    assert stated["figures"]["jct_floor_h"] == hidden["figures"]["jct_floor_h"]


READ = {
    "published": ["steep\trun\tdir\t--steps\t0\t900\t1\t1\t-1\t0", "flat\trun\tdir\t--steps\t0\t600.5\t2\t1\t-1\t60"],
    "csv": ["submit_time_s,duration_s,num_gpus,deadline_s", "0,300,1,1000", "60,300,2,"],
    "sacct": [
        "JobID|User|Submit|ElapsedRaw|AllocTRES",
        "7|ann|2026-01-31T12:00:00|300|gres/gpu=1",
        "8|bob|2026-01-31T12:01:00|300|gres/gpu=2",
    ],
    "history": [
        '{"kind": "steep", "submitted_at_s": 0, "total_steps": 900}',
        '{"kind": "flat", "submitted_at_s": 9, "total_steps": 9}',
    ],
}


@pytest.mark.parametrize("form", READ)
def test_a_file_of_every_form_is_simulated(form: str, rates: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("\n".join(READ[form]) + "\n", encoding="utf-8")
    assert simulated(path, tmp_path / "out", "--throughputs", str(rates), "--policy", "max_min_fairness")[0] == 0
    content = results(tmp_path / "out")
    assert [job["state"] for job in content["jobs"]] == ["COMPLETED"] * 2
    assert content["figures"]["deadlines"] == (form == "csv")


def test_tiers_have_their_shares_and_their_envy(trace: Path, tmp_path: Path) -> None:
    options = [
        "--policy",
        "hierarchical",
        "--tier-shares",
        "gold=1,free=1",
        "--tier",
        "gold=4",
        "--within-user",
        "equal",
    ]
    assert simulated(trace, tmp_path / "out", *options)[0] == 0
    content = results(tmp_path / "out")
    assert set(content["tier_shares"]) == {"default", "free", "gold"}
    assert content["tiers"]["gold"]["mean_jct_h"] < content["tiers"]["free"]["mean_jct_h"]
    assert content["tier_envy"]["gold"] < 0.2 and content["tier_envy"]["default"] == 0.0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Workers held by tier: hierarchical" in page and "envy %</th>" in page


def test_a_policy_of_ones_own_folder_is_compared(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    source = Path(first_come.__file__).read_text().replace('"fifo"', '"mine"')
    (folder / "mine.py").write_text(source, encoding="utf-8")
    code, output = simulated(
        trace, tmp_path / "out", "--policy-dir", str(folder), "--policy", "mine", "--policy", "fifo"
    )
    assert code == 0, output
    mine, fifo = json.loads((tmp_path / "out" / "results.json").read_text())["policies"].values()
    assert mine["figures"] == fifo["figures"]


def test_execution_plans_are_exported_with_their_kinds_and_sizes(service: Service, tmp_path: Path) -> None:
    token, path = service.token("operator", Scope.OPERATOR), tmp_path / "jobs.jsonl"
    with Client(service.url, token) as client:
        plans = ["data=1", {"parameters": {"tensor": 2}, "argv": ["false"]}]
        job = client.submit(argv=["true"], total_steps=5, sizes=[1, 2], global_batch=64, plans=plans)
    shell = {"GAVEL_URL": service.url, "GAVEL_TOKEN": token}
    assert CliRunner().invoke(app, ["export-trace", str(path)], env=shell).exit_code == 0
    (back,) = [each for each in Workload(text=str(path)).jobs() if each.id == job["id"]]
    stored = service.store.job(job["id"]).spec
    assert back.spec.plans == tuple(replace(plan, argv=()) for plan in stored.plans)
    assert (back.spec.kind, back.spec.plan) == (stored.kind, stored.plan)
    assert back.plan_steps_per_s == {"data=1": {1: {}, 2: {}}, "tensor=2": {2: {}}}  # nobody has measured them yet


def test_the_services_history_is_exported_and_simulated(service: Service, tmp_path: Path) -> None:
    token = service.token("operator", Scope.OPERATOR)
    with Client(service.url, token) as client:
        for steps in (500, 300):
            client.submit(kind="operator/model", argv=["true"], total_steps=steps, scale_factor=1)
    shell = {"GAVEL_URL": service.url, "GAVEL_TOKEN": token}
    exported = CliRunner().invoke(app, ["export-trace", str(tmp_path / "jobs.jsonl")], env=shell)
    assert exported.exit_code == 0 and "jobs written" in exported.output
    around, *rows = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    assert around.keys() == {"cluster", "tiers"}
    mine = [row for row in rows if row["kind"] == "operator/model"]
    assert [row["total_steps"] for row in mine] == [500, 300]
    assert rows[0]["submitted_at_s"] == 0.0
    for row in mine:
        row["throughput_steps_per_s"] = {"a100": 2.0, "t4": 1.0}  # nobody has measured them yet
    trace = tmp_path / "measured.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in mine))
    tiers = [option for row in mine for option in ("--tier", row["tier"])]
    assert simulated(trace, tmp_path / "out", "--policy", "fifo", *tiers)[0] == 0
    (result,) = json.loads((tmp_path / "out" / "results.json").read_text())["policies"].values()
    assert sorted(job["jct_s"] for job in result["jobs"]) == pytest.approx([150.0, 250.0], abs=5.0)
