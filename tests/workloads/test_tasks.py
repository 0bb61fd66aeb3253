"""The runtime's half of tasks, over a gang directory made by hand."""

import json
from pathlib import Path

import pytest

from gavel_runtime import Job
from gavel_runtime._service import JobCluster, ServiceError
from gavel_runtime._setting import setting_from
from gavel_runtime._tasks import Task, ask_for_task
from tests.workloads.gang import Gang, until


def say(directory: Path, file: str, **line: object) -> None:
    with (directory / f"{file}.jsonl").open("a") as opened:
        opened.write(json.dumps(line) + "\n")


def test_a_task_waits_runs_and_ends_as_the_files_say(tmp_path: Path) -> None:
    task = ask_for_task(tmp_path, "t", ["true"], {"near": 1}, {"A": "b"})
    assert json.loads((tmp_path / "tasks.jsonl").read_text()) == {
        "task": "t",
        "argv": ["true"],
        "requires": {"near": 1},
        "env": {"A": "b"},
    }
    assert (task.node, task.exit_code, task.message) == (None, None, "")
    with pytest.raises(TimeoutError, match="task t waits"):
        task.wait(0.0)
    say(tmp_path, "starts", task="other", node="n9")
    say(tmp_path, "starts", task="t", node="n1")
    assert task.node == "n1"
    with pytest.raises(TimeoutError, match="task t runs"):
        task.wait(0.0)
    say(tmp_path, "ends", task="t", exit_code=-9, message="")
    assert (task.wait(), task.exit_code) == (-9, -9)


def test_a_line_that_is_not_whole_yet_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "ends.jsonl").write_text('{"task": "t", "exit_code": 0, "mess')
    assert Task(tmp_path, "t").exit_code is None


@pytest.mark.parametrize(
    ("argv", "requires", "blamed"), [("true", {"x": 1}, "argv"), ([], {"x": 1}, "argv"), (["true"], {}, "requires")]
)
def test_what_cannot_be_asked_is_told_at_once(
    tmp_path: Path, argv: list[str], requires: dict[str, int], blamed: str
) -> None:
    with pytest.raises(ValueError, match=blamed):
        ask_for_task(tmp_path, "t", argv, requires, {})
    assert not (tmp_path / "tasks.jsonl").exists()


def test_outside_gavel_there_is_nobody_to_ask() -> None:
    with pytest.raises(RuntimeError, match="not run by Gavel"):
        Job().launch(["true"], requires={"x": 1})
    with pytest.raises(RuntimeError, match="GAVEL_URL"):
        Job().set_resource("near", 1, "here")
    assert (Job().id, Job().node) == ("", "")


def test_tasks_of_ranks_and_of_tasks_are_named_apart_and_tasks_do_no_steps(gang: Gang) -> None:
    script = """
from gavel_runtime import job

print([job.launch(["true"], requires={"x": 1}).name for _ in range(2)])
if job.world_size == 1:
    next(job.steps(total=1))
"""
    gang.start(script, world_size=1, GAVEL_TASK="rank-0-1", GAVEL_NODE="n1")
    (code,), (output,) = gang.finish()
    assert code == 1
    assert "['rank-0-1-1', 'rank-0-1-2']" in output
    assert "RuntimeError: task rank-0-1 is no rank" in output
    until((gang.directory / "tasks.jsonl").exists)


def test_a_task_has_its_own_place_in_the_setting() -> None:
    gavel = Gang.__new__(Gang)
    gavel.generation, gavel.directory, gavel.checkpoints, gavel.expires_boottime_s = 7, Path("g"), Path("c"), 9.0
    environment = gavel.environment(0, 1, 10, 0, "") | {"GAVEL_TASK": "t", "GAVEL_NODE": "n1", "GAVEL_URL": "http://x"}
    setting = setting_from(environment)
    assert (setting.task, setting.node, setting.job_id, setting.service_url) == ("t", "n1", "job-1", "http://x")


def test_a_service_that_is_not_there_is_named() -> None:
    with pytest.raises(ServiceError, match="did not answer") as caught:
        JobCluster("http://127.0.0.1:9", "generation", 60.0).get_cluster_state()
    assert caught.value.status == 0
