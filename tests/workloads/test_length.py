"""How many steps a job has: `job.steps(total=N)` inside Gavel and outside."""

import json
from typing import Any

import pytest

from gavel_runtime._length import TOTAL_STEPS_MAX, total_of
from gavel_runtime._setting import Setting
from tests.workloads.gang import Gang

LOOP = """
from gavel_runtime import job

for step in job.steps(total={total}, checkpoint=lambda path: None, restore=lambda path: None):
    pass
print("trained", step + 1)
"""
UNSAID = {"GAVEL_TOTAL_STEPS": ""}


def test_a_job_without_submitted_steps_does_those_of_its_script_and_tells_the_service(gang: Gang) -> None:
    codes, outputs = gang.start(LOOP.format(total=12), **UNSAID).finish()
    assert (codes, outputs) == ([0], ["trained 12\n"])
    reports = gang.reports()
    assert reports[0]["total_steps"] == 12, "the first report says it"
    assert [report["step"] for report in reports if report["kind"] == "finished"] == [12]
    assert not any("total_steps" in report for report in reports[1:])


def test_all_ranks_of_a_gang_do_the_steps_of_the_script(gang: Gang) -> None:
    codes, _ = gang.start(LOOP.format(total=5), ranks=range(2), **UNSAID).finish()
    assert codes == [0, 0]


def test_the_submitted_steps_go_before_those_of_the_script_and_the_log_says_so(gang: Gang) -> None:
    codes, (output,) = gang.start(LOOP.format(total=12), total=4).finish()
    assert codes == [0]
    assert "the job has 4 steps, as submitted or as it said first; total=12 is not used" in output
    assert output.endswith("trained 4\n")
    assert "total_steps" not in json.dumps(gang.reports())


def test_a_script_without_a_total_in_a_job_without_steps_is_told_what_to_write(gang: Gang) -> None:
    codes, (output,) = gang.start(LOOP.format(total=None), **UNSAID).finish()
    assert codes == [1]
    assert "the job was submitted without --steps, so say how many steps: job.steps(total=1000)" in output


@pytest.mark.parametrize("total", [0, -1, 2.5, "12", TOTAL_STEPS_MAX + 1])
def test_a_total_that_no_job_can_have_is_refused(total: Any) -> None:
    with pytest.raises(ValueError, match="total: "):
        total_of(Setting(), total)
