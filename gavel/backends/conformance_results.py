"""The part of `gavel.backends.conformance` about what a job brings to its nodes, and what it leaves behind."""

from dataclasses import fields, replace
from typing import Any

from gavel.backends.conformance_nodes import Check
from gavel.backends.harness import Harness, exit_of, find, is_in, launch, resource
from gavel.ports import ExtendLease, SaveCheckpoint
from gavel.types import GangOutcome, GangState, Observation, Report, ReportKind

SECRET = "a-value-of-ann"  # noqa: S105
STEPS = 1000
OF_THE_BACKEND = ("is_representative", "accelerator_memory_bytes")  # fields of a report that no program writes
REPORTED = Report(
    sequence=1,
    kind=ReportKind.CHECKPOINT,
    step=7,
    steps=5,
    seconds=0.5,
    checkpoint="2-7",
    work=640.0,
    phases_s={"eval": 1.5},
    total_steps=STEPS,
    metrics={"loss": 0.25},
    startup_s=4.0,
    restore_s=0.75,
    checkpoint_s=0.5,
    checkpoint_bytes=4096,
    checkpoint_every_s=90.0,
    checkpoint_cost_s=0.25,
    time_to_loss_s=7200.0,
    note="a checkpoint could not be loaded",
    restored="1-2",
)
WAITS_FOR_A_REQUEST = """until grep -q '"save_asked_s": *[1-9]' "$GAVEL_GANG_DIR/lease.json"; do sleep 0.05; done"""
REPORTS = """
mkdir -p "$GAVEL_CHECKPOINT_DIR/2-7" "$GAVEL_CHECKPOINT_DIR/1-2"
cat > "$GAVEL_GANG_DIR/reports.jsonl" <<'LINES'
{"sequence": 1, "kind": "checkpoint", "step": 7, "steps": 5, "seconds": 0.5, "checkpoint": "2-7", "work": 640, \
"phases": {"eval": 1.5}, "total_steps": 1000, "metrics": {"loss": 0.25}, "startup_s": 4.0, "restore_s": 0.75, \
"checkpoint_s": 0.5, "checkpoint_bytes": 4096, "checkpoint_every_s": 90.0, "checkpoint_cost_s": 0.25, \
"time_to_loss_s": 7200, \
"note": "a checkpoint could not be loaded", "restored": "1-2"}
LINES
"""
SAVES = 'for each in 1-7 1-9; do mkdir -p "$GAVEL_CHECKPOINT_DIR/$each"; done'
SHOWS = 'basename "$GAVEL_CHECKPOINT"; basename "$GAVEL_PREVIOUS_CHECKPOINT"; test -d "$GAVEL_PREVIOUS_CHECKPOINT"'


def _script(harness: Harness, text: str, job_id: str = "j1", generation: int = 1, **over: Any) -> list[str]:
    """Run a shell script as the job's only rank, and return the lines of the job's log; it has to succeed."""
    lines = _run(harness, text, job_id, generation, **over)
    end = exit_of(harness, job_id, generation)
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    return lines


def _run(harness: Harness, text: str, job_id: str, generation: int, **over: Any) -> list[str]:
    start = launch(harness, job_id, generation=generation)
    start = replace(start, argv=("sh", "-c", text), total_steps=STEPS, **over)
    harness.backend.execute([resource(harness, f"gang-{job_id}-{generation}", generation=generation), start])
    harness.wait_until(is_in(GangState.ENDED, job_id, generation=generation))
    return harness.backend.read_log(job_id)[0].decode().splitlines()


def a_gang_runs_in_a_copy_of_its_code(harness: Harness) -> None:
    """29: all files of the version are there; what the job changes stays for its next gang, and for no other job."""
    code = harness.store_code({"word": b"one\n", "lib/more": b"x" * 300_000})
    show = "cat word; wc -c < lib/more"
    assert _script(harness, f"{show}; echo two > word", code=code) == ["one", "300000"]
    assert _script(harness, show, generation=2, code=code) == ["one", "300000", "two", "300000"]
    assert _script(harness, show, "j2", code=code) == ["one", "300000"]


def a_secret_reaches_the_ranks_and_is_masked(harness: Harness) -> None:
    """30: it is a variable, and no log has its value; one that is gone ends the next gang with its name."""
    harness.store_secret("ann", "TOKEN", SECRET)
    lines = _script(harness, f'test "$TOKEN" = {SECRET} && echo "it is $TOKEN"', secrets=("TOKEN",))
    assert lines == ["it is ***"]
    _run(harness, "true", "j2", 1, secrets=("TOKEN", "OTHER"))
    end = exit_of(harness, "j2")
    assert (end.outcome, end.message) == (
        GangOutcome.NOT_STARTED,
        "there is no secret OTHER; store it with gavel secret set OTHER",
    )


def a_setup_runs_once_for_each_content(harness: Harness) -> None:
    """31: the ranks run in its environment, later jobs find it; one that fails ends the job with its code and lines."""
    code = harness.store_code({"requirements.txt": b"nothing\n"})
    brings: dict[str, Any] = {
        "code": code,
        "python": harness.python,
        "setup": "echo ready > $VIRTUAL_ENV/made; echo made",
    }
    assert _script(harness, 'cat "$VIRTUAL_ENV/made"', **brings) == ["[setup] made", "ready"]
    assert _script(harness, 'cat "$VIRTUAL_ENV/made"', "j2", **brings)[-1] == "ready"
    lines = _run(harness, "true", "j3", 1, **{**brings, "setup": "echo looking; exit 3"})
    end = exit_of(harness, "j3")
    assert (end.outcome, end.message) == (GangOutcome.NOT_STARTED, "its setup failed with exit code 3")
    assert lines == ["[setup] looking"]


def what_a_job_writes_to_its_output_folder_stays(harness: Harness) -> None:
    """32: over its gangs, where the service lists it; what it deletes is gone."""
    _script(harness, 'cd "$GAVEL_OUTPUT_DIR"; echo one > a; echo old > old')
    second = 'cd "$GAVEL_OUTPUT_DIR"; cat a; rm old; mkdir in; echo two > in/b'
    assert _script(harness, second, generation=2) == ["one"]
    listed = harness.outputs().listing("j1").files
    assert [(each.path, each.size_bytes) for each in listed] == [("a", 4), ("in/b", 4)]


def every_field_of_a_report_arrives(harness: Harness) -> None:
    """33: as the program wrote it. None of the fields of `REPORTED` has its default, so that none can be forgotten."""
    for each in fields(Report):
        assert each.name in OF_THE_BACKEND or getattr(REPORTED, each.name) != each.default, each.name
    reports: list[Report] = []

    def has_ended(seen: Observation) -> bool:
        status = find(seen, "j1", 2)
        reports.extend(status.reports if status else ())
        return is_in(GangState.ENDED, "j1", generation=2)(seen)

    start = launch(harness, "j1", generation=2)
    started = replace(start, argv=("sh", "-c", REPORTS), total_steps=None, start_step=4)
    harness.backend.execute([resource(harness, "gang-j1-2", generation=2), started])
    harness.wait_until(has_ended)
    assert reports
    assert all(replace(each, is_representative=True) == REPORTED for each in reports)


def a_gang_that_is_asked_for_a_checkpoint_learns_it_and_goes_on(harness: Harness) -> None:
    """36: rank 0 reads the request in lease.json, also after the lease was extended once more."""
    start = replace(launch(harness, "j1"), argv=("sh", "-c", WAITS_FOR_A_REQUEST))
    harness.backend.execute([resource(harness, "gang-j1-1"), start])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    asked = SaveCheckpoint(job_id="j1", generation=1, asked_at_s=harness.now_s())
    later = ExtendLease(job_id="j1", generation=1, expires_at_s=start.lease_expires_at_s + 60)
    harness.backend.execute([asked])
    harness.backend.execute([later, asked])
    assert exit_of(harness, "j1").outcome is GangOutcome.EXITED


def the_checkpoint_before_the_accepted_one_is_told(harness: Harness) -> None:
    """34: in case that the accepted one cannot be loaded."""
    _script(harness, SAVES)
    assert _script(harness, SHOWS, generation=2, checkpoint="1-9", start_step=9) == ["1-9", "1-7"]


def a_program_can_know_how_long_gangs_of_its_size_last(harness: Harness) -> None:
    """35: for the time between its checkpoints; nothing is there where nobody knows."""
    show = 'echo "${GAVEL_TIME_TO_LOSS_S-none}"'
    assert _script(harness, show, time_to_loss_s=5400.25) == ["5400"]
    assert _script(harness, show, generation=2) == ["5400", "none"]


CHECKS: tuple[Check, ...] = (
    a_gang_runs_in_a_copy_of_its_code,
    a_secret_reaches_the_ranks_and_is_masked,
    a_setup_runs_once_for_each_content,
    what_a_job_writes_to_its_output_folder_stays,
    every_field_of_a_report_arrives,
    the_checkpoint_before_the_accepted_one_is_told,
    a_program_can_know_how_long_gangs_of_its_size_last,
    a_gang_that_is_asked_for_a_checkpoint_learns_it_and_goes_on,
)
