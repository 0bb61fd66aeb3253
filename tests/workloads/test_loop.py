"""A loop that is called back at each step: every rank saves, saving in a thread, ending early; and Python 3.10."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from gavel_runtime._versions import TESTED, warn_if_untested
from tests.workloads.gang import ROOT, Gang

RUNTIME = ROOT / "runtime"
EVERY_RANK = """
from gavel_runtime import job

done = []


def save(path):
    (path / f"rank-{job.rank}").write_text(f"{len(done)} of {len(job.all_gather(b'x'))}")


def load(path):
    done[:] = range(int((path / f"rank-{job.rank}").read_text().split()[0]))


loop = job.loop(checkpoint=save, restore=load, total=12, every_rank=True)
while loop.next():
    done.append(loop.step)
    loop.step_done()
loop.close()
print("trained", len(done))
"""
IN_A_THREAD = """
import threading, time
from gavel_runtime import job

training_goes_on = threading.Event()
done = []


def save(path):
    copy = len(done)

    def write():
        if copy < 12:
            assert training_goes_on.wait(60)
        (path / "done").write_text(str(copy))

    return write


for step in job.steps(checkpoint=save, restore=None, total=12, checkpoint_every_s=0.0):
    done.append(step)
    if step == 5:
        training_goes_on.set()
print("trained")
"""
LOGS_LATER = """
from gavel_runtime import job

loop = job.loop(checkpoint=None, restore=None, total=6)
while loop.next():
    loop.step_done(logs_later=True)
    job.report(step=loop.step)
"""
ENDS_EARLY = """
from gavel_runtime import job

loop = job.loop(checkpoint=lambda path: (path / "state").touch(), total=12)
while loop.step < 5 and loop.next():
    loop.step_done()
loop.finish()
loop.close()
print("ended at", loop.step)
"""


def test_every_rank_writes_its_part_of_a_checkpoint_after_the_same_step(gang: Gang) -> None:
    """1 two ranks stop before step 7, 2 both parts are in the one checkpoint, 3 the next gang goes on from there."""
    codes, outputs = gang.start(EVERY_RANK, ranks=range(2), total=12, GAVEL_STOP_STEP="7").finish()
    assert codes == [75, 75], outputs
    (path,) = gang.checkpoints.iterdir()
    assert {each.name: each.read_text() for each in path.iterdir()} == {"rank-0": "7 of 2", "rank-1": "7 of 2"}
    later = Gang(gang.root, generation=8)
    later.start(EVERY_RANK, ranks=range(2), total=12, start=7, checkpoint=path)
    assert later.finish() == ([0, 0], ["trained 12\n", "trained 12\n"])
    assert later.names() == ["7-7", "8-12"]


def test_training_goes_on_while_a_checkpoint_is_written_in_a_thread(gang: Gang) -> None:
    """The first one can only be written once step 5 was done; its report comes after that, and steps never go back."""
    assert gang.start(IN_A_THREAD, total=12).finish() == ([0], ["trained\n"])
    saved = [report for report in gang.reports() if report["kind"] == "checkpoint"]
    assert [(report["step"], report["checkpoint"]) for report in (saved[0], saved[-1])] == [(1, "7-1"), (12, "7-12")]
    steps = [report["step"] for report in gang.reports()]
    assert steps == sorted(steps)
    assert sum(report["steps"] for report in gang.reports()) == 11


def test_a_loop_that_is_finished_early_leaves_a_checkpoint_and_is_finished_there(gang: Gang) -> None:
    assert gang.start(ENDS_EARLY, total=12).finish() == ([0], ["ended at 5\n"])
    assert gang.names() == ["7-5"]
    assert [each["step"] for each in gang.reports() if each["kind"] == "finished"] == [5]


@pytest.mark.parametrize("library", sorted(TESTED))
def test_an_adapter_warns_about_versions_that_it_was_not_tested_with(library: str) -> None:
    warn_if_untested(library, f"{TESTED[library]}.7+cpu")
    for version in ("0.0.1", "99.0", "unknown"):
        with pytest.warns(UserWarning, match=f"tested with {library} {TESTED[library]}, and this is {version}"):
            warn_if_untested(library, version)


@pytest.mark.parametrize("path", sorted(RUNTIME.rglob("*.py")), ids=lambda path: path.name)
def test_the_runtime_is_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


def test_the_runtime_runs_under_python_3_10() -> None:
    python = shutil.which("python3.10")
    ran = None
    if python:
        program = "from gavel_runtime import job; print(list(job.steps(total=3)))"
        environment = {"PYTHONPATH": str(RUNTIME), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run(
            [python, "-B", "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    if ran is None or "not found" in ran.stderr:
        pytest.skip("there is no python3.10 here")
    assert ran.stdout == "[0, 1, 2]\n", ran.stderr


LEFT = """
from gavel_runtime import job

done = []
for step in job.steps(checkpoint=lambda path: (path / "state").touch(), restore=lambda path: None, total=12):
    done.append(step)
    if step == 4:
        if FINISHES:
            job.finish()
        break
print("left after", len(done))
"""


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("finishes", [True, False])
def test_a_loop_that_is_left_is_finished_where_the_program_says_so(tmp_path: Path, ranks: int, finishes: bool) -> None:
    gang = Gang(tmp_path).start(LEFT.replace("FINISHES", str(finishes)), ranks=range(ranks), total=12)
    codes, outputs = gang.finish()
    assert (codes, outputs) == ([0] * ranks, ["left after 5\n"] * ranks)
    finished = [(each["kind"], each["step"]) for each in gang.reports() if each["kind"] == "finished"]
    assert finished == ([("finished", 5)] if finishes else [])
    assert gang.names() == (["7-5"] if finishes else [])


def test_a_loop_can_be_finished_only_once_it_has_begun() -> None:
    from gavel_runtime._job import Job

    with pytest.raises(RuntimeError, match=r"no loop over job\.steps"):
        Job().finish()


def test_metrics_that_a_library_logs_after_a_step_are_reported_with_that_step(tmp_path: Path) -> None:
    gang = Gang(tmp_path).start(LOGS_LATER, total=6, GAVEL_REPORT_EVERY_S="0")
    codes, outputs = gang.finish()
    assert codes == [0], outputs
    reported = {report["step"]: report["metrics"]["step"] for report in gang.reports() if "metrics" in report}
    assert reported == {step: step for step in range(2, 7)}  # the first step is no measurement, and not reported
