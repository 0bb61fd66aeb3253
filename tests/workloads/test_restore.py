"""A checkpoint that cannot be loaded: the one before it is, and the job goes on from there."""

from itertools import pairwise
from pathlib import Path

from tests.workloads.gang import Gang, counting, until


def kept(gang: Gang, name: str, content: str) -> Path:
    folder = gang.checkpoints / name
    folder.mkdir(parents=True)
    (folder / "done.json").write_text(content)
    return folder


def start(gang: Gang, previous: Path | None, ranks: int = 1) -> tuple[list[int], list[str]]:
    broken = kept(gang, "6-20", "[0, 1")
    given = {"total": 60, "start": 20, "checkpoint": broken, "GAVEL_PREVIOUS_CHECKPOINT": str(previous or "")}
    return gang.start(counting(0.02), ranks=range(ranks), **given).finish()  # type: ignore[arg-type]


def test_the_one_before_is_loaded_and_its_later_steps_are_done_again(gang: Gang) -> None:
    codes, outputs = start(gang, kept(gang, "5-10", str(list(range(10)))))
    assert codes == [0] and "trained 60" in outputs[0]
    note = "Checkpoint 6-20 could not be loaded. "
    assert f"gavel: {note}" in outputs[0]
    first, *later = gang.reports()
    assert (first["step"], first["steps"], first["restored"]) == (10, 0, "5-10") and first["note"].startswith(note)
    assert "The job goes on from 5-10, the one before it, and does the steps after 10 again." in first["note"]
    assert "The error was: JSONDecodeError: " in first["note"] and "The error was: JSONDecodeError: " in outputs[0]
    assert all("note" not in report and "restored" not in report for report in later)
    steps = [10, *(report["step"] for report in later)]
    spans = [after - before for before, after in pairwise(steps)]
    assert all(report["steps"] <= span for report, span in zip(later, spans, strict=True))
    assert later[-1]["kind"] == "finished" and gang.names()[-1] == "7-60"


def test_what_is_done_again_is_saved_when_the_lease_ends_before_the_accepted_step(gang: Gang) -> None:
    """Else each gang would begin at the same checkpoint again, and lose what it has done."""
    given = {"total": 1000, "start": 900, "checkpoint": kept(gang, "6-900", "[0, 1")}
    previous = kept(gang, "5-10", str(list(range(10))))
    running = gang.start(counting(0.02), **given, GAVEL_PREVIOUS_CHECKPOINT=str(previous))  # type: ignore[arg-type]
    until(lambda: any(report["step"] > 10 for report in gang.reports()))
    gang.lease(0.0)
    running.finish()
    (saved,) = [report for report in gang.reports() if report["kind"] == "checkpoint"]
    assert 10 < saved["step"] < 900 and (gang.checkpoints / saved["checkpoint"]).is_dir()


def test_without_one_before_the_job_fails_with_the_name_of_the_checkpoint(gang: Gang) -> None:
    codes, outputs = start(gang, None)
    assert codes == [1] and "6-20 could not be loaded" in outputs[0]


def test_one_that_has_to_be_fetched_is_asked_for_and_waited_for(gang: Gang) -> None:
    given = {"total": 30, "start": 20, "checkpoint": kept(gang, "6-20", "[0, 1")}
    previous = gang.checkpoints / "5-10"
    running = gang.start(counting(0.0), **given, GAVEL_PREVIOUS_CHECKPOINT=str(previous))  # type: ignore[arg-type]
    until((gang.directory / "previous.wanted").exists)
    kept(gang, "fetching", str(list(range(10)))).rename(previous)
    codes, outputs = running.finish()
    assert codes == [0] and "trained 30" in outputs[0]


def test_one_that_cannot_be_fetched_is_named(gang: Gang) -> None:
    (gang.directory / "previous.failed").touch()
    codes, outputs = start(gang, gang.checkpoints / "5-10")
    assert codes == [1]
    assert "5-10 could not be loaded; neither could 6-20 (JSONDecodeError" in outputs[0]


def test_if_neither_loads_both_are_named(gang: Gang) -> None:
    codes, outputs = start(gang, kept(gang, "5-10", "broken, too"))
    assert codes == [1]
    assert "5-10 could not be loaded; neither could 6-20 (JSONDecodeError" in outputs[0]


def test_a_gang_of_two_fails_since_its_ranks_could_begin_at_different_steps(gang: Gang) -> None:
    codes, outputs = start(gang, kept(gang, "5-10", str(list(range(10)))), ranks=2)
    assert 1 in codes and any("6-20 could not be loaded" in output for output in outputs)
