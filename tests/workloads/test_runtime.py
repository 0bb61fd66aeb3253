"""One rank under a lease: real processes, a gang directory made by hand."""

import json
import signal
from pathlib import Path

import pytest

from gavel_runtime._lease import boottime_s
from tests.workloads.gang import Gang, counting, launch, until


def saved_steps(gang: Gang, name: str) -> list[int]:
    return json.loads((gang.checkpoints / name / "done.json").read_text())  # type: ignore[no-any-return]


def test_a_job_runs_to_its_end_and_says_so(gang: Gang) -> None:
    codes, outputs = gang.start(counting(), total=40).finish()
    assert (codes, outputs) == ([0], ["trained 40\n"])
    reports = gang.reports()
    assert [report["sequence"] for report in reports] == list(range(1, len(reports) + 1))
    assert [report["kind"] for report in reports[-2:]] == ["checkpoint", "finished"]
    assert reports[-1]["step"] == 40
    assert reports[-2]["checkpoint"] == "7-40"
    assert saved_steps(gang, "7-40") == list(range(40))
    assert gang.names() == ["7-40"]


def test_reports_leave_out_the_first_step_and_cover_all_others(gang: Gang) -> None:
    gang.start(counting(), total=160).finish()
    reports = gang.reports()
    assert sum(report["steps"] for report in reports) == 159
    assert sum(report["seconds"] for report in reports) >= 159 * 0.005
    assert all(report["kind"] == "progress" for report in reports[:-2])
    assert len(reports) > 2, "0.8 s of training and no report of progress"


def test_the_first_report_says_how_long_the_start_took_and_a_checkpoint_how_long_it_took(gang: Gang) -> None:
    gang.start(counting(), total=20).finish()
    first, *_, saved, finished = gang.reports()
    assert first["step"] == first["steps"] == 0
    assert first["startup_s"] > 0, "an interpreter does not start in no time"
    assert first["restore_s"] >= 0 and saved["checkpoint_s"] >= 0
    assert not {"startup_s", "restore_s", "checkpoint_s"} & finished.keys()


def test_a_job_stops_at_the_end_of_its_lease_with_a_checkpoint(gang: Gang) -> None:
    gang.start(counting(), total=100_000)
    until(lambda: gang.done() > 3)
    expires_boottime_s = gang.lease(0.2)
    codes, outputs = gang.finish()
    assert boottime_s() >= expires_boottime_s
    assert (codes, outputs) == ([75], [""])
    steps = gang.done()
    assert gang.reports()[-1]["kind"] == "checkpoint"
    assert gang.reports()[-1]["step"] == steps
    assert saved_steps(gang, f"7-{steps}") == list(range(steps))


def test_an_extended_lease_keeps_the_same_process_running(gang: Gang) -> None:
    gang.start(counting(0.01), total=150, lease_s=1.0)
    gang.lease(600.0)
    codes, outputs = gang.finish()
    assert boottime_s() > gang.expires_boottime_s
    assert (codes, outputs) == ([0], ["trained 150\n"])


HOLD = """
import json, os, time
from pathlib import Path
from gavel_runtime import job
from gavel_runtime._lease import boottime_s

lease = Path(os.environ["GAVEL_GANG_DIR"], "lease.json")


def lasts(seconds):
    temporary = lease.with_suffix(".new")
    temporary.write_text(json.dumps({"expires_boottime_s": boottime_s() + seconds, "stop": False}))
    temporary.rename(lease)


for step in job.steps(checkpoint=lambda path: lasts(LATER), restore=None):
    if step == 1:
        time.sleep(1.2)
    if step == 2:
        time.sleep(0.06)  # the lease is read every 0.05 s
        lasts(0.75)
print("trained")
"""


def test_a_job_that_waits_for_its_lease_to_end_goes_on_when_it_is_extended(gang: Gang) -> None:
    """1 a step takes 1.2 s; 2 the lease has 0.75 s left; 3 a checkpoint; 4 the lease is extended; 5 the job goes on."""
    codes, outputs = gang.start(HOLD.replace("LATER", "600"), total=6).finish()
    assert (codes, outputs) == ([0], ["trained\n"])
    assert [report["step"] for report in gang.reports() if report["kind"] == "checkpoint"] == [3, 6]


def test_a_job_that_waits_for_its_lease_to_end_does_not_start_a_step(gang: Gang) -> None:
    codes, outputs = gang.start(HOLD.replace("LATER", "0.1"), total=6).finish()
    assert (codes, outputs) == ([75], [""])
    assert [report["step"] for report in gang.reports() if report["kind"] == "checkpoint"] == [3]


def test_a_stop_in_the_lease_ends_the_job_at_once_with_a_checkpoint(gang: Gang) -> None:
    gang.start(counting(), total=100_000)
    until(lambda: gang.done() > 3)
    gang.lease(600.0, stop=True)
    codes, _ = gang.finish()
    assert codes == [75]
    assert gang.names() == [f"7-{gang.done()}"]
    assert boottime_s() < gang.expires_boottime_s


def test_a_request_in_the_lease_is_a_checkpoint_after_the_step_and_the_job_goes_on(gang: Gang) -> None:
    def saved() -> list[int]:
        return [report["step"] for report in gang.reports() if report["kind"] == "checkpoint"]

    gang.start(counting(), total=100_000)
    until(lambda: gang.done() > 3)
    for asked_s, count in ((5.0, 1), (5.0, 1), (6.0, 2)):
        gang.lease(600.0, save_asked_s=asked_s)
        until(lambda count=count: len(saved()) == count)  # type: ignore[misc]
        step = gang.done()
        until(lambda step=step: gang.done() > step + 10)  # type: ignore[misc]
    assert len(saved()) == 2 and set(gang.names()) == {f"7-{step}" for step in saved()}
    gang.lease(600.0, stop=True)
    assert gang.finish()[0] == [75]


def test_sigterm_ends_the_job_between_steps_with_a_checkpoint(gang: Gang) -> None:
    gang.start(counting(), total=100_000)
    until(lambda: gang.done() > 3)
    gang.ranks[0].send_signal(signal.SIGTERM)
    codes, _ = gang.finish()
    assert codes == [75]
    assert gang.names() == [f"7-{gang.done()}"]
    assert gang.reports()[-1]["checkpoint"] == f"7-{gang.done()}"


def test_a_job_that_leaves_already_is_not_torn_out_of_it_by_a_signal(gang: Gang) -> None:
    """Rank and supervisor see the end of the lease at the same instant, so the signal may come while the rank ends."""
    cleans_up = """
import atexit
def clean_up():
    Path("leaves").touch()
    while not Path("signalled").exists():
        time.sleep(0.01)
    print("cleaned up")
atexit.register(clean_up)
"""
    first, last = counting().split("done = []")
    gang.start(f"{first}{cleans_up}done = []{last}", total=100_000)
    until(lambda: gang.done() > 3)
    gang.lease(0.1)
    until((gang.root / "leaves").exists)
    gang.ranks[0].send_signal(signal.SIGTERM)
    (gang.root / "signalled").touch()
    assert gang.finish() == ([75], ["cleaned up\n"])


AFTER = """
Path("after").touch()
while not Path("signalled").exists():
    time.sleep(0.01)
print("evaluated")
"""


def test_what_follows_the_loop_may_use_the_grace_after_the_signal(gang: Gang) -> None:
    gang.start(counting() + AFTER, total=2)
    until((gang.root / "after").exists)
    gang.ranks[0].send_signal(signal.SIGTERM)
    (gang.root / "signalled").touch()
    assert gang.finish() == ([0], ["trained 2\nevaluated\n"])


UNLOADS = """
class Library:
    def __del__(self, Path=Path, sleep=time.sleep):
        Path("after").touch()
        while not Path("signalled").exists():
            sleep(0.01)
library = Library()
"""


def test_a_program_may_use_the_grace_to_unload_its_libraries(gang: Gang) -> None:
    gang.start(counting() + UNLOADS, total=2)
    until((gang.root / "after").exists)
    gang.ranks[0].send_signal(signal.SIGTERM)
    (gang.root / "signalled").touch()
    assert gang.finish() == ([0], ["trained 2\n"])


def test_programs_that_are_started_after_the_loop_end_by_the_signal(gang: Gang) -> None:
    child = "import subprocess\nprint(subprocess.run(['bash', '-c', 'kill $$; sleep 60']).returncode)\n"
    gang.start(counting() + child, total=2)
    assert gang.finish() == ([0], ["trained 2\n-15\n"])


LEFT_EARLY = """
import time
from pathlib import Path
from gavel_runtime import job
with job.loop(total=9) as loop:
    loop.next()
"""


@pytest.mark.parametrize(("script", "extra"), [(LEFT_EARLY, {}), (counting(), {"GAVEL_GANG_DIR": ""})])
def test_a_loop_left_early_or_outside_gavel_gives_the_signal_back(
    script: str, extra: dict[str, str], gang: Gang
) -> None:
    gang.start(script.replace("total=None", "total=2") + AFTER, total=9, **extra)
    until((gang.root / "after").exists)
    gang.ranks[0].send_signal(signal.SIGTERM)
    assert gang.finish()[0] == [-signal.SIGTERM]


def test_a_handler_of_the_program_has_the_signal_back_after_the_loop(gang: Gang) -> None:
    own = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))\n"
    gang.start(own + counting() + AFTER, total=2)
    until((gang.root / "after").exists)
    gang.ranks[0].send_signal(signal.SIGTERM)
    (gang.root / "signalled").touch()
    codes, outputs = gang.finish()
    assert codes == [0]
    assert "own" in outputs[0]


def test_a_job_goes_on_from_its_checkpoint(gang: Gang, tmp_path: Path) -> None:
    gang.start(counting(), total=100_000)
    until(lambda: gang.done() > 3)
    gang.lease(600.0, stop=True)
    gang.finish()
    steps = gang.done()
    later = Gang(tmp_path, generation=8)
    later.start(counting(), total=steps + 5, start=steps, checkpoint=gang.checkpoints / f"7-{steps}")
    assert later.finish() == ([0], [f"trained {steps + 5}\n"])
    assert saved_steps(later, f"8-{steps + 5}") == list(range(steps + 5))
    assert sum(report["steps"] for report in later.reports()) == 4


def test_a_job_restored_at_its_total_only_says_that_it_is_finished(gang: Gang) -> None:
    gang.start(counting(), total=3).finish()
    later = Gang(gang.root, generation=8)
    later.start(counting(), total=3, start=3, checkpoint=gang.checkpoints / "7-3")
    assert later.finish() == ([0], ["trained 3\n"])
    assert [(report["kind"], report["step"]) for report in later.reports()] == [("finished", 3)]
    assert later.names() == ["7-3"]


def test_a_lease_that_ended_before_the_start_costs_no_checkpoint(gang: Gang) -> None:
    codes, _ = gang.start(counting(), total=3, lease_s=-1.0).finish()
    assert codes == [75]
    assert [(report["kind"], report["step"]) for report in gang.reports()] == [("progress", 0)]


@pytest.mark.parametrize("text", ["", '{"expires_bo', "[]", '{"expires_boottime_s": NaN, "stop": true}', "\udcff"])
def test_a_torn_lease_file_changes_nothing(gang: Gang, text: str) -> None:
    (gang.directory / "lease.json").write_bytes(text.encode(errors="surrogateescape"))
    assert gang.start(counting(), total=5).finish()[0] == [0]


@pytest.mark.full
def test_a_checkpoint_is_written_now_and_then_on_the_way(gang: Gang) -> None:
    script = counting().replace("total=None", "checkpoint_every_s=0.1")
    gang.start(script, total=100).finish()
    names = [report["checkpoint"] for report in gang.reports() if report["kind"] == "checkpoint"]
    assert len(names) >= 2
    assert gang.names() == sorted(names)


def test_a_full_disk_fails_the_job_and_leaves_no_half_checkpoint(gang: Gang) -> None:
    script = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + counting(0).replace(
        "json.dumps(done)", "'x' * 10_000"
    )
    codes, outputs = gang.start(script, total=3).finish()
    assert codes == [1]
    assert "OSError" in outputs[0]
    assert gang.names() == []
    assert [(report["kind"], report["step"]) for report in gang.reports()] == [("progress", 0)]


def test_a_kill_during_a_checkpoint_leaves_nothing_visible_and_the_next_gang_clears_it_away(gang: Gang) -> None:
    script = counting().replace("(path /", "(path / 'part').touch(); os.kill(os.getpid(), 9); (path /", 1)
    codes, _ = gang.start(script, total=3).finish()
    assert codes == [-signal.SIGKILL]
    assert gang.names() == [".7-3.tmp"]
    later = Gang(gang.root, generation=8)
    assert later.start(counting(), total=3).finish()[0] == [0]
    assert later.names() == ["8-3"]


def test_without_a_save_function_a_job_reports_its_progress_and_stops(gang: Gang) -> None:
    script = counting().replace("checkpoint=save, restore=load, ", "")
    gang.start(script, total=100_000)
    until(lambda: gang.done() > 3)
    gang.lease(0.2)
    assert gang.finish()[0] == [75]
    assert {report["kind"] for report in gang.reports()} == {"progress"}
    assert gang.reports()[-1]["step"] == gang.done()


def test_metrics_come_with_the_reports(gang: Gang) -> None:
    script = counting().replace(
        "    done.append", "    job.report(loss=1 / (step + 1), rate=float('nan'))\n    done.append"
    )
    gang.start(script, total=4).finish()
    assert gang.reports()[-1]["metrics"] == {"loss": 0.25}


def test_a_checkpoint_without_a_restore_function_is_refused(gang: Gang) -> None:
    script = "from gavel_runtime import job\nlist(job.steps())"
    codes, outputs = gang.start(script, total=4, start=2, checkpoint=gang.root).finish()
    assert codes == [1]
    assert f"restore: there is a checkpoint at {gang.root}" in outputs[0]


def test_a_launcher_below_a_rank_is_refused_with_the_way_to_do_it(gang: Gang) -> None:
    codes, outputs = gang.start(counting(), total=4, WORLD_SIZE="2", RANK="1").finish()
    assert codes == [1]
    assert "leave the launcher out, and submit the script with --scale-factor 2" in outputs[0]


def run_alone(script: str, out: Path, **environment: str) -> tuple[int, str]:
    process = launch((script,), {"OUT": str(out), **environment})
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def test_outside_gavel_a_job_runs_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        counting(0).replace("None", "7") + "print(job.rank, job.world_size, job.is_rank_zero, job.accelerator_type)"
    )
    assert run_alone(script, tmp_path) == (0, "trained 7\n0 1 True standalone\n")
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0"]


def test_outside_gavel_a_job_wants_to_know_how_many_steps(tmp_path: Path) -> None:
    code, output = run_alone(counting(0), tmp_path)
    assert code == 1
    assert "total: not run by Gavel, so say how many steps" in output


@pytest.mark.full
def test_outside_gavel_a_job_goes_on_from_the_newest_checkpoint_of_a_given_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    for total in (9, 10, 12):
        script = counting(0).replace("None", str(total))
        assert run_alone(script, tmp_path, GAVEL_CHECKPOINT_DIR=folder) == (0, f"trained {total}\n")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0-10", "0-12", "0-9"]


def test_the_runtime_loads_the_standard_library_only(tmp_path: Path) -> None:
    script = """
import sys
from gavel_runtime import job
tops = {name.partition(".")[0] for name in sys.modules}
print(sorted(tops - set(sys.stdlib_module_names) - {"__main__", "gavel_runtime"} - BEFORE))
"""
    before = "import sys\nBEFORE = {name.partition('.')[0] for name in sys.modules}\n"
    assert run_alone(before + script, tmp_path) == (0, "[]\n")
