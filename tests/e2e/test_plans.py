"""Execution plans with real processes: each type of accelerator ends with the plan that is the faster one there."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gavel.client import Client, Job
from gavel.demo.service import ServiceProcess, wait_until

LIMIT_S = 120
STEPS = 10**6
SETTINGS = {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_LEASE_GRACE_S": "2", "GAVEL_CPU_WORKERS": "all"}
PROGRAM = """
import json, time
from gavel_runtime import job

FAST = {"TYPE_A": "rows", "TYPE_B": "columns"}
step_s = 0.004 if FAST[job.accelerator_type] == job.plan_name else 0.02
assert job.plan["tensor"] == (2 if job.plan_name == "columns" else 1), job.plan
plans = []


def save(folder):
    (folder / "plans.json").write_text(json.dumps(plans))


def load(folder):
    if job.plan_name == "broken":
        raise RuntimeError("its shards are of another shape")
    plans[:] = json.loads((folder / "plans.json").read_text())


for step in job.steps(checkpoint=save, restore=load):
    if plans[-1:] != [job.plan_name]:
        plans.append(job.plan_name)
        (job.output_dir / "plans.json").write_text(json.dumps(plans))
    time.sleep(step_s)
"""
PLANS: list[Any] = [
    {"name": "rows", "parameters": {"tensor": 1}},
    {"name": "columns", "parameters": {"tensor": 2}, "sizes": [1]},
    {"name": "broken", "parameters": {"tensor": 1}},
]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_each_job_ends_with_the_plan_that_is_the_faster_one_on_its_type(tmp_path: Path) -> None:
    """1 a job on each type starts under the first plan, 2 each tries the others, from the same checkpoints, 3 a plan
    that cannot load them is told and left, 4 each job stays under the plan that is the faster one where it runs.
    """
    with ServiceProcess(tmp_path / "state", SETTINGS) as running, Client(running.url, running.operator_token) as client:
        assert wait_until(lambda: bool(client.cluster()["workers"]), LIMIT_S)
        types = list(dict.fromkeys(each["accelerator_type"] for each in client.cluster()["workers"]))[:2]
        assert len(types) == 2, types
        script = PROGRAM.replace("TYPE_A", types[0]).replace("TYPE_B", types[1])
        (tmp_path / "train.py").write_text(script)
        program = [sys.executable, "-u", str(tmp_path / "train.py")]
        jobs = [
            client.submit(argv=program, total_steps=STEPS, plans=PLANS, accelerator_types=[name])["id"]
            for name in types
        ]

        def plans_of(job_id: str) -> list[str]:
            return [event["plan"] for event in client.events(job_id) if event["plan"]]

        def has_tried_all() -> bool:
            """Both tried both; the broken one is left for both where it failed for one."""
            tried = [set(plans_of(job_id)) for job_id in jobs]
            return all(each >= {"rows", "columns"} for each in tried) and "broken" in set.union(*tried)

        assert wait_until(has_tried_all, LIMIT_S), [plans_of(job) for job in jobs]
        best = ["rows", "columns"]
        assert wait_until(lambda: [_settled(client, job) for job in jobs] == best, LIMIT_S), [
            (client.job(job)["plan"], plans_of(job)) for job in jobs
        ]
        messages = [event["message"] for job_id in jobs for event in client.events(job_id)]
        failures = [each for each in messages if "under plan broken" in each and "does not fit" in each]
        assert failures and all("shape" in each for each in failures), messages
        assert all(client.job(job_id)["failures"] == 0 for job_id in jobs)
        reasons = [client.explain(job_id)["plan_reason"] for job_id in jobs]
        assert all("no plan is known to be faster there" in each and "broken failed here" in each for each in reasons)
        kept = json.loads(b"".join(client.read_file(jobs[1], "plans.json")))
        assert kept[0] == "rows" and kept[-1] == "columns"


def _settled(client: Client, job_id: str) -> str:
    """The plan of a job that has run for three rounds under it; "": it has not."""
    job: Job = client.job(job_id)
    launches = [event["at_s"] for event in client.events(job_id) if event["plan"]]
    is_long = next(iter(client.rounds(limit=1)))["starts_at_s"] - launches[-1] > 6 if launches else False
    return job["plan"] or "" if is_long else ""
