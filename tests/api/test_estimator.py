from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from api.schemas import ThroughputList
from api.views.throughputs import throughput_list
from gavel.estimator.conformance import a_measurement
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.reference_profiles import estimator_of
from gavel.ports import ThroughputEstimate, ThroughputSource
from tests.api.conftest import Service

Table = tuple[ThroughputEstimate, ...]
STATED = 900.0
PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}
PATH = "/v1/throughputs"


@pytest.fixture
def table() -> Iterator[Table]:
    learned = ReconciledThroughputs().learn(
        [a_measurement(n, stated_steps_per_s=STATED) for n in range(1, 6)]
        + [a_measurement(1, job_id="k", kind="ann/own", user="bob")]
    )
    yield learned.table()


def shown(table: Table, *types: str, **may_see: Callable[[str], bool]) -> ThroughputList:
    sees = {"may_see_kind": lambda _: True, "may_see_user": lambda _: True} | may_see
    return throughput_list(estimator_of(table), table, types, **sees)


def test_types_not_measured_yet_are_shown_with_wider_intervals(table: Table) -> None:
    view = throughput_list(
        estimator_of(table), table, ["fast", "slow"], may_see_kind=lambda _: True, may_see_user=lambda _: True
    )
    by_type = {item.accelerator_type: item for item in view.items if item.kind == "mlp-b256"}
    assert (by_type["fast"].source, by_type["slow"].source) == ("measured", "inferred")
    assert by_type["fast"].low_steps_per_s < 100 < by_type["fast"].high_steps_per_s
    width = {name: item.high_steps_per_s / item.low_steps_per_s for name, item in by_type.items()}
    assert width["slow"] > 2 * width["fast"]


def test_who_is_off_is_said(table: Table) -> None:
    view = throughput_list(
        estimator_of(table), table, ["fast"], may_see_kind=lambda _: True, may_see_user=lambda _: True
    )
    assert [(each.user, each.is_off) for each in view.users] == [("ann", True)]
    assert [each.stated_steps_per_s for each in view.user_claims] == [STATED]


def test_kinds_and_users_that_a_caller_may_not_see_are_left_out(table: Table) -> None:
    view = throughput_list(
        estimator_of(table),
        table,
        ["fast"],
        may_see_kind=lambda kind: "/" not in kind,
        may_see_user=lambda user: user == "bob",
    )
    assert {item.kind for item in view.items} == {"mlp-b256"} and view.users == [] and view.user_claims == []


def rate(kind: str, **over: object) -> ThroughputEstimate:
    fields = {"scale_factor": 1, "accelerator_type": "fast", "steps_per_s": 10.0, "relative_error": 0.02}
    return ThroughputEstimate(kind=kind, source=ThroughputSource.MEASURED, measurements=9, **(fields | over))  # type: ignore[arg-type]


def kinds(client: httpx.Client, path: str) -> set[str]:
    return {item["kind"] for item in client.get(path).json()["items"]}


def test_a_catalogue_kind_of_one_job_is_shown_to_its_user_and_operators_alone(service: Service) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    job_id = ann.post("/v1/jobs", json=PROGRAM).json()["id"]
    own, gone = f"mlp-b256{OWN_KIND}{job_id}", f"mlp-b256{OWN_KIND}nosuchjob"
    service.change(throughputs=(rate("mlp-b256"), rate(own), rate(gone)))
    assert kinds(bob, PATH) == {"mlp-b256"}
    assert kinds(ann, PATH) == {"mlp-b256", own}
    assert kinds(service.operator(), PATH) == {"mlp-b256", own, gone}


def test_a_partner_that_a_caller_may_not_see_is_not_named(service: Service) -> None:
    (name, ann), (_, bob) = service.user(), service.user()
    service.change(throughputs=(rate("mlp-b256"), rate("mlp-b256", partner=f"{name}/secret", steps_per_s=4.0)))
    assert [item["partner"] for item in ann.get(PATH).json()["interference"]] == [f"{name}/secret"]
    assert name not in bob.get(PATH).text


def test_items_hold_one_rate_for_each_kind_size_and_type_and_shared_ones_are_apart(service: Service) -> None:
    spread = rate("mlp-b256", scale_factor=2, placement="spread", steps_per_s=3.0)
    service.change(throughputs=(rate("mlp-b256"), rate("mlp-b256", partner="mlp-b256", steps_per_s=4.0), spread))
    answer = service.operator().get(PATH).json()
    keys = [(item["scale_factor"], item["accelerator_type"]) for item in answer["items"]]
    assert len(set(keys)) == len(keys) and all(item["placement"] == "consolidated" for item in answer["items"])
    of_one = {item["accelerator_type"]: item for item in answer["items"] if item["scale_factor"] == 1}
    assert of_one["fast"]["steps_per_s"] == 10.0 and of_one["fast"]["is_measured"]
    apart = [(item["scale_factor"], item["partner"], item["placement"]) for item in answer["interference"]]
    assert apart == [(1, "mlp-b256", "consolidated"), (2, None, "spread")]


def test_a_job_s_own_speed_is_what_the_scheduler_believes_of_it(service: Service) -> None:
    """1. Nothing was measured: what its user stated. 2. Its kind was. 3. It was seen to differ from its kind."""
    (_, ann), (_, bob) = service.user(), service.user()
    service.change(throughputs=())
    body = PROGRAM | {"throughputs": {"fast": 7.0}, "scale_factor": 2}
    job = ann.post("/v1/jobs", json=body).json()
    kind, path = job["kind"], f"{PATH}?job_id={job['id']}"

    def rates() -> dict[str, tuple[float, str]]:
        return {x["accelerator_type"]: (x["steps_per_s"], x["source"]) for x in ann.get(path).json()["items"]}

    assert rates()["fast"] == (7.0, "stated") and rates().keys() == {"fast", "slow"}
    interference = rate(kind, scale_factor=2, placement="spread", steps_per_s=3.99)
    service.change(throughputs=(rate(kind, scale_factor=2, steps_per_s=9.96), interference))
    assert rates()["fast"] == (9.96, "measured")
    own = rate(f"{kind}{OWN_KIND}{job['id']}", scale_factor=2, steps_per_s=5.0)
    service.change(throughputs=(rate(kind, scale_factor=2, steps_per_s=9.96), own, interference))
    assert rates()["fast"] == (5.0, "measured")
    assert bob.get(path).status_code == 404 and ann.get(f"{PATH}?job_id=A!").status_code == 422


def test_each_source_is_an_enumeration_of_the_api_and_has_its_sentence_in_the_docs(service: Service) -> None:
    schemas = service.client().get("/openapi.json").json()["components"]["schemas"]
    assert schemas["ThroughputSource"]["enum"] == [each.value for each in ThroughputSource]
    page = " ".join((Path(__file__).parents[2] / "docs" / "estimator.md").read_text().split())
    for source in ThroughputSource:
        assert f"| `{source}` | {source.sentence} |" in page
