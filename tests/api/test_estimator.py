from collections.abc import Iterator

import pytest

from api.estimator import estimator_view
from gavel.estimator.conformance import a_measurement
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.ports import ThroughputEstimate

Table = tuple[ThroughputEstimate, ...]
STATED = 900.0


@pytest.fixture
def table() -> Iterator[Table]:
    learned = ReconciledThroughputs().learn(
        [a_measurement(n, stated_steps_per_s=STATED) for n in range(1, 6)]
        + [a_measurement(1, job_id="k", kind="ann/own", user="bob")]
    )
    yield learned.table()


def test_types_not_measured_yet_are_shown_with_wider_intervals(table: Table) -> None:
    view = estimator_view(table, ["fast", "slow"], may_see_kind=lambda _: True, may_see_user=lambda _: True)
    by_type = {item.accelerator_type: item for item in view.items if item.kind == "mlp-b256"}
    assert (by_type["fast"].source, by_type["slow"].source) == ("measured", "inferred")
    assert by_type["fast"].low_steps_per_s < 100 < by_type["fast"].high_steps_per_s
    width = {name: item.high_steps_per_s / item.low_steps_per_s for name, item in by_type.items()}
    assert width["slow"] > 2 * width["fast"]


def test_who_is_off_is_said(table: Table) -> None:
    view = estimator_view(table, ["fast"], may_see_kind=lambda _: True, may_see_user=lambda _: True)
    assert [(each.user, each.is_off) for each in view.users] == [("ann", True)]
    assert [each.stated_steps_per_s for each in view.statements] == [STATED]


def test_kinds_and_users_that_a_caller_may_not_see_are_left_out(table: Table) -> None:
    view = estimator_view(
        table, ["fast"], may_see_kind=lambda kind: "/" not in kind, may_see_user=lambda user: user == "bob"
    )
    assert {item.kind for item in view.items} == {"mlp-b256"} and view.users == [] and view.statements == []
