"""What is encoded comes back, bit for bit."""

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gavel.store import codec
from gavel.store.samples import round_record, same
from gavel.types import (
    Cluster,
    Job,
    JobState,
    PlanInputs,
    PlannedJobs,
    Reason,
    Residence,
    RoundPlan,
    RoundRecord,
    WorkDone,
)
from tests.builders import a_spec

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROFILE = settings(max_examples=2000 if IS_FULL else 60)
ANY_FLOAT = st.floats(width=64)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ARRAYS = npst.arrays(
    dtype=st.sampled_from([np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)]),
    shape=npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


def row_of(job: Job) -> SimpleNamespace:
    return SimpleNamespace(
        id=job.id,
        spec=codec.dump(job.spec),
        state=job.state.value,
        submitted_at_s=job.submitted_at_s,
        steps_done=job.steps_done,
        generation=job.generation,
        version=job.version,
        cancel_requested=job.cancel_requested,
        pause_requested=job.pause_requested,
        progress=codec.progress(job),
    )


def stored_and_read(record: RoundRecord) -> RoundRecord:
    plan, decision = codec.pack_round(record)
    return codec.record(SimpleNamespace(round_index=record.plan.round_index, plan=plan, decision=decision))


@PROFILE
@given(
    text=TEXT,
    number=st.floats(allow_nan=False),
    mapping=st.dictionaries(TEXT, TEXT),
    state=st.sampled_from(JobState),
    exit_code=st.none() | st.integers(-64, 255),
)
def test_a_job_comes_back(
    text: str, number: float, mapping: dict[str, str], state: JobState, exit_code: int | None
) -> None:
    job = Job(
        id="j1",
        spec=a_spec(argv=(text, "-c"), env=mapping, labels=mapping, deadline_at_s=number),
        state=state,
        message=text,
        log_tail=text,
        received_s={text: number},
        metrics={text: number},
        started_at_s=number,
        exit_code=exit_code,
    )
    assert codec.job(row_of(job)) == job


def test_of_a_round_the_two_newest_plans_are_kept_and_of_many_rounds_the_last_ones() -> None:
    def row_of(plan: RoundPlan) -> SimpleNamespace:
        return SimpleNamespace(round_index=plan.round_index, plan=zlib.compress(codec.dump(plan).encode()))

    first = round_record(7).plan
    plans = [replace(first, leases=first.leases * count) for count in range(9)]
    rows = [row_of(plan) for plan in (*plans, *(round_record(100 + index).plan for index in range(99)))]
    for _ in range(2):
        for row in rows[:9]:
            assert codec.plan(row).round_index == 7
        assert sum(plan.round_index == 7 for plan in codec._PLANS.values()) == 2
        for row in rows[9:]:
            assert codec.plan(row) is codec.plan(row)
        assert len(codec._PLANS) <= codec.PLANS_KEPT
    assert [codec.plan(row) for row in rows[:9]] == plans


def test_what_a_job_has_by_default_is_not_written() -> None:
    assert codec.progress(Job(id="j1", spec=a_spec())) == "{}"
    assert json.loads(codec.progress(Job(id="j1", spec=a_spec(), losses=2, metrics={}))) == {"losses": 2}


def test_the_default_of_a_stored_field_says_nothing() -> None:
    """Rows leave it out: another default would change what they say."""
    others = {name: default for name, default in codec._JOB_PROGRESS if default}
    assert others == {"reason": Reason.PENDING_EVALUATION, "work": WorkDone(), "residence": Residence()}
    assert (WorkDone(), Residence()) == (
        WorkDone(units=0.0, steps=0, seconds=0.0),
        Residence(region="", copies=(), moved_from="", arrives_at_s=0.0, copy_s=0.0, moves=0, why=""),
    )


def test_read_only_mappings_come_back_as_equal_ones() -> None:
    job = Job(id="j1", spec=a_spec(env=MappingProxyType({"A": "b"})), metrics=MappingProxyType({"loss": 0.5}))
    assert codec.job(row_of(job)) == Job(id="j1", spec=a_spec(env={"A": "b"}), metrics={"loss": 0.5})


@PROFILE
@given(array=ARRAYS, number=ANY_FLOAT)
def test_a_round_comes_back(array: np.ndarray, number: float) -> None:
    sample = round_record(1)
    record = replace(
        sample,
        allocation=replace(sample.allocation, warm_start={"array": array, "deep": [{"array": array}]}),
        problem=replace(sample.problem, warm_start={"array": array}),
        lag_rounds={("j", "v100"): number, ("k", "v100"): -number},
    )
    back = stored_and_read(record)
    assert same(back.problem, record.problem) and same(back.plan, record.plan)
    assert same(back.allocation.warm_start["array"], array)
    assert same(back.allocation.warm_start["deep"][0]["array"], array)
    lag = [np.float64(value).tobytes() for value in back.lag_rounds.values()]
    assert lag == [np.float64(number).tobytes(), np.float64(-number).tobytes()] or np.isnan(number)


def test_notes_and_demands_of_a_round_come_back_and_older_rounds_have_none() -> None:
    record = round_record(1)
    back = stored_and_read(record)
    assert back.allocation.notes == record.allocation.notes != ()
    assert same(back.problem.cpu_cores, record.problem.cpu_cores)
    assert same(back.problem.memory_bytes, record.problem.memory_bytes)
    assert (back.problem.cluster_cpu_cores, back.problem.cluster_memory_bytes) == (64.0, np.inf)
    newer = ("notes", "cpu_cores", "memory_bytes", "cluster_cpu_cores", "cluster_memory_bytes")
    plan, decision = codec.pack_round(record)
    item = json.loads(zlib.decompress(decision))
    for half in ("problem", "allocation"):
        item[half] = {name: value for name, value in item[half].items() if name not in newer}
    old = zlib.compress(json.dumps(item).encode())
    read = codec.record(SimpleNamespace(round_index=1, plan=plan, decision=old))
    assert read.allocation.notes == ()
    assert read.problem.cpu_cores.shape == (0,)
    assert read.problem.cluster_memory_bytes == np.inf


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of a field, so that a new field of a record is tried unasked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is np.ndarray:
        return npst.arrays(get_args(arguments[1])[0], st.integers(0, 3))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is Mapping:
        return st.dictionaries(*map(values_of, arguments), max_size=2)
    if origin is UnionType:
        return st.one_of(*map(values_of, arguments))
    return st.builds(hint, **{name: values_of(each) for name, each in get_type_hints(hint).items()})


PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {
    str: st.text("ab\u00fc", max_size=2),
    int: st.integers(0, 2**53),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    NoneType: st.none(),
}
PLAN_INPUTS = values_of(PlanInputs)


@pytest.mark.full
@PROFILE
@given(inputs=PLAN_INPUTS)
def test_what_a_round_was_planned_from_comes_back_whole(inputs: PlanInputs) -> None:
    back = stored_and_read(replace(round_record(1), inputs=inputs)).inputs
    assert back is not None and same(back, inputs)


@pytest.mark.parametrize("name", [each.name for each in fields(PlanInputs)])
def test_inputs_of_an_older_form_are_read_as_none(name: str) -> None:
    inputs = PlanInputs(
        policy="fifo", cluster=Cluster(), jobs=PlannedJobs.of([]), parent=None, starts_at_s=0.0, duration_s=1.0
    )
    plan, decision = codec.pack_round(replace(round_record(1), inputs=inputs))
    item = json.loads(zlib.decompress(decision))
    del item["inputs"][name]
    old = SimpleNamespace(round_index=1, plan=plan, decision=zlib.compress(json.dumps(item).encode()))
    assert codec.record(old).inputs is None


def test_arrays_of_a_stored_round_can_be_written_to() -> None:
    assert stored_and_read(round_record(1)).allocation.time_fraction.flags.writeable


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="numeric"):
        codec.dump({"array": np.array([object()])})
    with pytest.raises(TypeError, match="object"):
        codec.dump({"thing": object()})


def test_a_job_with_a_reason_of_a_newer_version_is_read_and_written_as_it_was() -> None:
    row = row_of(Job(id="j1", spec=a_spec()))
    row.progress = json.dumps(json.loads(row.progress) | {"reason": "FromTheFuture", "message": "It waits for 2030."})
    job = codec.job(row)
    assert (job.reason.value, job.explanation) == ("FromTheFuture", "It waits for 2030.")
    assert json.loads(codec.progress(job))["reason"] == "FromTheFuture"
