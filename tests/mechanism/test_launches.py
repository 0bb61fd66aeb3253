"""How many workers the history of a job says that its gang has: what is written of a launch can be read again."""

from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.jobs.events import EventKind, Launched
from gavel.mechanism.jobs.launches import launch_message, plan_after, workers_after
from gavel.mechanism.jobs.lifecycle import step
from tests.builders import a_job

WORKERS = st.lists(st.from_regex(r"[a-z0-9]+(-[a-z0-9]+){0,3}/?[0-9]", fullmatch=True), min_size=1, max_size=6)


@given(WORKERS, st.integers(1, 10**9), st.integers(0, 10**12))
def test_the_sentence_about_a_launch_says_how_many_workers_there_are(
    workers: list[str], generation: int, from_step: int
) -> None:
    assert workers_after(EventKind.LAUNCHED, launch_message(workers, generation, from_step)) == len(workers)


def test_the_event_of_a_launch_has_that_sentence() -> None:
    launched = Launched(at_s=1.0, generation=2, round_index=3, accelerator_type="fast", worker_ids=("fast-0", "fast-1"))
    _, event = step(a_job("j"), launched)
    assert workers_after(event.kind, event.message) == 2


def test_ends_of_gangs_leave_none_and_other_events_change_nothing() -> None:
    assert [workers_after(kind, "on fast-0") for kind in (EventKind.PREEMPTED, EventKind.FINISHED)] == [0, 0]
    assert [workers_after(kind, "on fast-0") for kind in (EventKind.LAUNCHED, "job.edited")] == [None, None]


@given(WORKERS, st.from_regex(r"[A-Za-z0-9]([-_.,=A-Za-z0-9]{0,20}[A-Za-z0-9])?", fullmatch=True))
def test_the_sentence_about_a_launch_says_under_which_plan_it_is(workers: list[str], plan: str) -> None:
    message = launch_message(workers, 3, 40, plan)
    assert plan_after(EventKind.LAUNCHED, message) == plan
    assert workers_after(EventKind.LAUNCHED, message) == len(workers)
    assert plan_after(EventKind.LAUNCHED, launch_message(workers, 3, 40)) is None
    assert plan_after(EventKind.PREEMPTED, message) is None


def test_the_sentence_about_a_launch_names_the_workers_and_where_it_begins() -> None:
    where = "The gang was launched on fast-0, fast-1 as number 3, from step 40"
    assert launch_message(("fast-0", "fast-1"), 3, 40) == f"{where}."
    assert launch_message(("fast-0", "fast-1"), 3, 40, "tensor=2") == f"{where}, under plan tensor=2."


def test_a_sentence_that_no_launch_has_says_nothing_of_a_plan() -> None:
    assert plan_after(EventKind.LAUNCHED, "on fast-0, under plan a.") is None
    assert workers_after("job.edited", launch_message(("fast-0",), 3, 40)) is None
