from collections.abc import Iterator

import httpx
import pytest

from api.estimator import estimator_view
from gavel.estimator.conformance import a_measurement
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.ports import ThroughputEstimate
from tests.api.conftest import Service

Table = tuple[ThroughputEstimate, ...]
STATED = 900.0
PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


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


def rate(kind: str, **over: object) -> ThroughputEstimate:
    found = {"scale_factor": 1, "accelerator_type": "fast", "steps_per_s": 10.0, "relative_error": 0.02}
    return ThroughputEstimate(kind=kind, source="measured", measurements=9, **(found | over))  # type: ignore[arg-type]


def kinds(client: httpx.Client, path: str) -> set[str]:
    return {item["kind"] for item in client.get(path).json()["items"]}


@pytest.mark.parametrize("path", ["/v1/throughputs", "/v1/estimator"])
def test_a_catalogue_kind_of_one_job_is_shown_to_its_user_and_operators_alone(service: Service, path: str) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    own, gone = f"mlp-b256{OWN_KIND}{job_id}", f"mlp-b256{OWN_KIND}nosuchjob"
    service.change(throughputs=(rate("mlp-b256"), rate(own), rate(gone)))
    assert kinds(bob, path) == {"mlp-b256"}
    assert kinds(ann, path) == {"mlp-b256", own}
    assert kinds(service.operator(), path) == {"mlp-b256", own, gone}


def test_a_partner_that_a_caller_may_not_see_is_not_named(service: Service) -> None:
    (name, ann), (_, bob) = service.user(), service.user()
    service.change(throughputs=(rate("mlp-b256"), rate("mlp-b256", partner=f"{name}/secret", steps_per_s=4.0)))
    assert {item["partner"] for item in ann.get("/v1/estimator").json()["items"]} == {None, f"{name}/secret"}
    assert name not in bob.get("/v1/estimator").text


def test_the_plain_list_holds_one_rate_for_each_kind_size_and_type(service: Service) -> None:
    """Gangs that were packed or spread are the estimator's to show, which says so of each."""
    spread = rate("mlp-b256", scale_factor=2, placement="spread", steps_per_s=3.0)
    service.change(throughputs=(rate("mlp-b256"), rate("mlp-b256", partner="mlp-b256", steps_per_s=4.0), spread))
    items = service.operator().get("/v1/throughputs").json()["items"]
    assert [(item["scale_factor"], item["steps_per_s"]) for item in items] == [(1, 10.0)]
    shown = service.operator().get("/v1/estimator").json()["items"]
    assert {item["placement"] for item in shown if item["scale_factor"] == 2} == {"consolidated", "spread"}
