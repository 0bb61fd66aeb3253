"""The allocation matrix, grouped by the service."""

from collections.abc import Sequence

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.views.grouping import ROWS_MAX, grouped_view, rows_of
from api.views.jobs_and_rounds import allocation_view
from api.views.memo import Memo
from tests.api.conftest import Service
from tests.api.rounds import a_record
from tests.builders import a_job

FRACTIONS = st.tuples(st.floats(0, 1), st.floats(0, 1))
ROWS = st.lists(st.tuples(st.sampled_from(["gold", "silver"]), st.sampled_from(["mlp", "cnn"]), FRACTIONS), max_size=12)


@given(rows=ROWS)
def test_groups_keep_every_job_and_the_sum_of_every_type(
    rows: Sequence[tuple[str, str, tuple[float, float]]],
) -> None:
    jobs = {f"j{i}": a_job(f"j{i}", spec={"tier": tier, "kind": kind}) for i, (tier, kind, _) in enumerate(rows)}
    record = a_record([], {f"j{i}": row[2] for i, row in enumerate(rows)})
    view, grouped = allocation_view(record, jobs, 10.0), grouped_view(record, jobs, 10.0)
    assert len(grouped.rows) == len({row[:2] for row in rows}) and grouped.jobs == len(rows) == rows_of(record, jobs)
    assert sum(row.jobs for row in grouped.rows) == len(rows)
    for j in range(2):
        assert sum(r.target[j] * r.jobs for r in grouped.rows) == pytest.approx(sum(r.target[j] for r in view.rows))


def test_a_grouped_matrix_is_kept_until_something_changed_or_a_second_is_over() -> None:
    record, jobs = a_record([], {"j0": (0.5, 0.25)}), {"j0": a_job("j0")}
    kept = Memo(grouped_view, kept_s=1.0)
    first = kept.of(record, jobs, now_s=10.0)
    assert kept.of(record, jobs, now_s=10.9) is first
    assert kept.of(record, jobs, now_s=11.0) is not first
    assert kept.of(record, {}, now_s=11.0).jobs == 0
    assert kept.of(a_record([], {"j0": (1.0, 0.0)}), jobs, now_s=11.0).rows[0].target == [1.0, 0.0]


@pytest.fixture(scope="module")
def operator(service: Service) -> httpx.Client:
    _, ann = service.user()
    job = {"argv": ["x"], "total_steps": 1, "tier": "gold"}
    jobs = ann.post("/v1/jobs/array", json={"job": job, "count": ROWS_MAX}).json()["items"]
    other = ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 1, "tier": "silver"}).json()
    target = {each["id"]: (1e-4, 0.0) for each in jobs} | {other["id"]: (0.5, 0.25)}
    service.change(round=a_record([], target))
    return service.operator()


def test_more_rows_than_anybody_reads_are_grouped_when_asked_for_auto(operator: httpx.Client) -> None:
    view = operator.get("/v1/allocations/current?group_by=auto").json()
    assert (view["is_grouped"], view["jobs"], [row["jobs"] for row in view["rows"]]) == (True, ROWS_MAX + 1, [500, 1])
    assert view["rows"][0]["target"] == pytest.approx([1e-4, 0.0]) and view["rows"][0]["job_id"] == ""
    assert view["rows"][1]["target"] == [0.5, 0.25] and view["rows"][1]["job_id"]
    whole = operator.get("/v1/allocations/current").json()
    assert (whole["is_grouped"], len(whole["rows"])) == (False, ROWS_MAX + 1)


@pytest.mark.parametrize(
    ("query", "is_grouped", "rows", "jobs"),
    [
        ("group_by=auto&tier=silver", False, 1, 1),
        ("group_by=tier_and_kind&tier=silver", True, 1, 1),
        ("tier=gold&limit=3", False, 3, ROWS_MAX),
        ("kind=nobody/has", False, 0, 0),
    ],
)
def test_a_part_of_the_matrix_can_be_asked_for(
    operator: httpx.Client, query: str, is_grouped: bool, rows: int, jobs: int
) -> None:
    view = operator.get(f"/v1/allocations/current?{query}").json()
    assert (view["is_grouped"], len(view["rows"]), view["jobs"]) == (is_grouped, rows, jobs)
