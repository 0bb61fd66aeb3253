"""A program that cannot be changed is preempted by two commands of its user: one dumps its state, one restores it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.gang import Gang, until

COUNTER = """
import os, sys, time
from pathlib import Path

count = Path("count-" + os.environ["GAVEL_RANK"])  # ranks share the folder
part = count.with_suffix(".part")
so_far = int(count.read_text()) if count.exists() else 0
print("counts on from", so_far)
for number in range(so_far + 1, int(sys.argv[1]) + 1):
    time.sleep(0.05)
    part.write_text(str(number))
    part.rename(count)
print("counted to", number, flush=True)
sys.exit(int(sys.argv[2]))
"""
DUMP = 'test -d /proc/$GAVEL_PROGRAM_PID && cp count-0 "$GAVEL_SNAPSHOT_DIR/count"'
RESTORE = 'cp "$GAVEL_SNAPSHOT_DIR/count" count-0'


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[list[Gang]]:
    (tmp_path / "counter.py").write_text(COUNTER)
    made: list[Gang] = []
    yield made
    for gang in made:
        gang.stop()


def start(
    gangs: list[Gang], folder: Path, number: int, *, dump: str = DUMP, code: int = 0, ranks: int = 1, **begun: object
) -> Gang:
    """A gang that counts to the number, one every twentieth of a second, and ends with the code."""
    gang = Gang(folder, generation=len(gangs) + 1)
    gangs.append(gang)
    program = ("python", "counter.py", str(number), str(code))
    words = ("-m", "gavel_runtime._hooks", dump, RESTORE, *program)
    environment = {"GAVEL_TOTAL_STEPS": "", "GAVEL_REPORT_EVERY_S": "0"}
    return gang.start(*words, ranks=range(ranks), **environment, **begun)  # type: ignore[arg-type]


def test_a_program_that_is_stopped_goes_on_from_what_its_dump_saved(gangs: list[Gang], tmp_path: Path) -> None:
    count = tmp_path / "count-0"
    first = start(gangs, tmp_path, 60)
    until(lambda: count.exists() and int(count.read_text()) >= 25)
    first.lease(600.0, stop=True)
    assert first.finish()[0] == [75]
    saved = first.reports()[-1]
    assert saved["kind"] == "checkpoint" and saved["checkpoint"] == f"1-{saved['step']}"
    assert (saved["steps"], saved["seconds"]) == (0, 0.0), "seconds of a program say nothing about its speed"
    count.unlink()
    snapshot = first.checkpoints / saved["checkpoint"]
    counted = int((snapshot / "count").read_text())
    assert counted >= 25

    second = start(gangs, tmp_path, 60, start=saved["step"], checkpoint=snapshot)
    codes, outputs = second.finish()
    assert codes == [0] and f"counts on from {counted}\n" in outputs[0] and "counted to 60" in outputs[0]
    finished = second.reports()[-1]
    assert finished["kind"] == "finished" and "total_steps" not in finished
    assert saved["step"] < finished["step"]


def test_a_dump_that_fails_is_told_and_the_program_goes_on(gangs: list[Gang], tmp_path: Path) -> None:
    gang = start(gangs, tmp_path, 4000, dump="echo cannot; exit 3")
    until((tmp_path / "count-0").exists)
    gang.lease(1.2)
    codes, outputs = gang.finish()
    assert codes == [75]
    assert "the dump command ended with exit code 3; the program goes on, nothing was saved" in outputs[0]
    assert gang.names() == [] and all(report["kind"] == "progress" for report in gang.reports())


@pytest.mark.parametrize("code", [3, 7])
def test_a_program_that_fails_ends_the_rank_with_its_exit_code(gangs: list[Gang], tmp_path: Path, code: int) -> None:
    assert start(gangs, tmp_path, 2, code=code).finish()[0] == [code]


def test_a_program_that_is_killed_ends_the_rank_by_the_same_signal(gangs: list[Gang], tmp_path: Path) -> None:
    gang = start(gangs, tmp_path, 2, dump="true")
    gang.finish()
    killer = Gang(tmp_path, generation=9)
    gangs.append(killer)
    program = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    killer.start("-m", "gavel_runtime._hooks", "true", "true", *program, GAVEL_TOTAL_STEPS="")
    assert killer.finish()[0] == [-9]


def test_a_program_that_is_not_there_is_named(gangs: list[Gang], tmp_path: Path) -> None:
    gang = Gang(tmp_path)
    gangs.append(gang)
    gang.start("-m", "gavel_runtime._hooks", "true", "true", "./nothing", GAVEL_TOTAL_STEPS="")
    codes, outputs = gang.finish()
    assert codes == [127] and "gavel: cannot run ./nothing: No such file or directory" in outputs[0]


def test_a_restore_that_fails_ends_the_program_before_it_starts(gangs: list[Gang], tmp_path: Path) -> None:
    gone = tmp_path / "1-5"
    gone.mkdir()
    codes, outputs = start(gangs, tmp_path, 2, start=5, checkpoint=gone).finish()
    assert codes == [1] and "the restore command ended with exit code 1" in outputs[0]
    assert not (tmp_path / "count-0").exists()


def test_a_gang_ends_when_the_programs_of_all_its_ranks_have(gangs: list[Gang], tmp_path: Path) -> None:
    gang = start(gangs, tmp_path, 20, ranks=2)
    codes, outputs = gang.finish()
    assert codes == [0, 0] and all("counted to 20" in output for output in outputs), outputs
    assert gang.reports()[-1]["kind"] == "finished"
