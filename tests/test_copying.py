"""`changed` is `dataclasses.replace`, for every record and every field that it is used with."""

import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.types import Job, JobSpec
from gavel.types.copying import changed, with_shared_defaults, without_defaults
from tests.builders import a_job, a_spec

JOB = a_job(generation=3, received_s={"fast": 1.5}, steps_done=7, checkpoint="3-7")


@given(st.dictionaries(st.sampled_from([each.name for each in fields(Job)]), st.integers()))
def test_it_replaces_as_the_library_does(values: dict[str, int]) -> None:
    assert changed(JOB, **values) == replace(JOB, **values)  # type: ignore[arg-type]
    assert a_job(generation=3, received_s={"fast": 1.5}, steps_done=7, checkpoint="3-7") == JOB


@given(st.dictionaries(st.sampled_from([each.name for each in fields(JobSpec)]), st.integers()))
def test_it_replaces_fields_of_a_record_with_slots_too(values: dict[str, int]) -> None:
    spec = a_spec(sizes=(1, 2), global_batch=64, env={"A": "1"})
    assert changed(spec, **values) == replace(spec, **values)  # type: ignore[arg-type]
    assert spec == a_spec(sizes=(1, 2), global_batch=64, env={"A": "1"})
    with pytest.raises(AttributeError):
        changed(spec, nothing=1)


def test_a_copy_is_frozen_and_has_no_other_fields() -> None:
    copy = changed(JOB, generation=4)
    assert copy == replace(JOB, generation=4)
    with pytest.raises(FrozenInstanceError):
        copy.generation = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        changed(JOB, nothing=1)


@given(
    trained_s=st.floats(0, 1), received_s=st.dictionaries(st.just("fast"), st.floats(0, 1)), attempt=st.integers(0, 1)
)
def test_leaving_out_the_defaults_changes_no_value(
    trained_s: float, received_s: dict[str, float], attempt: int
) -> None:
    made = Job(id="j", spec=a_spec(), trained_s=trained_s, received_s=received_s, attempt=attempt)
    before = replace(made)
    assert without_defaults(made) is made
    assert made == before == pickle.loads(pickle.dumps(made))
    assert (repr(made), hash(made.id), asdict(made)) == (repr(before), hash(before.id), asdict(before))
    assert changed(made, losses=2, trained_s=0.0) == replace(before, losses=2, trained_s=0.0)
    assert changed(made, trained_s=0.0, received_s={}) == without_defaults(
        replace(before, trained_s=0.0, received_s={})
    )


def test_a_job_that_waits_keeps_little() -> None:
    assert len(without_defaults(Job(id="j", spec=a_spec())).__dict__) < 12


@pytest.mark.parametrize("field", ["retry_at_s", "phases_s", "received_s", "work", "metrics"])
def test_what_a_job_says_nothing_of_is_one_object_for_all(field: str) -> None:
    one, other = (without_defaults(Job(id=name, spec=a_spec())) for name in "ab")
    assert getattr(one, field) is getattr(other, field)


def test_it_shares_those_of_a_record_with_slots_too() -> None:
    one, other = (with_shared_defaults(JobSpec(kind="k", user="u", tier="t", argv=("a",))) for _ in range(2))
    assert one.env is other.env
