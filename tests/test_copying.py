"""`changed` is `dataclasses.replace`, for every record and every field that it is used with."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.types import Job
from gavel.types.copying import changed
from tests.builders import a_job

JOB = a_job(generation=3, received_s={"fast": 1.5}, steps_done=7, checkpoint="3-7")


@given(st.dictionaries(st.sampled_from([each.name for each in fields(Job)]), st.integers()))
def test_it_replaces_as_the_library_does(values: dict[str, int]) -> None:
    assert changed(JOB, **values) == replace(JOB, **values)  # type: ignore[arg-type]
    assert a_job(generation=3, received_s={"fast": 1.5}, steps_done=7, checkpoint="3-7") == JOB


def test_a_copy_is_frozen_and_has_no_other_fields() -> None:
    copy = changed(JOB, generation=4)
    assert copy == replace(JOB, generation=4)
    with pytest.raises(FrozenInstanceError):
        copy.generation = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        changed(JOB, nothing=1)
