"""Switching the policy: durable, checked where the name is given, done by the scheduler."""

import pytest

from tests.api.conftest import Service


def test_a_switch_is_a_command_that_names_the_policy_in_its_shortest_form(service: Service) -> None:
    answer = service.operator().put("/v1/policies/current", json={"policy": "max_min_fairness?agnostic=false"})
    assert answer.status_code == 202 and answer.json()["state"] == "pending"
    command = service.store.operation(answer.json()["id"])
    assert (command.kind, command.subject, dict(command.body)) == (
        "policy.switch",
        "policy",
        {"policy": "max_min_fairness"},
    )
    back = service.operator().put("/v1/policies/current", json={"policy": None}).json()
    assert dict(service.store.operation(back["id"]).body) == {"policy": ""}


def test_a_composition_is_set_like_a_policy_and_its_mistakes_are_told(service: Service) -> None:
    wanted = {"policy": "fifo/planner=lag/backfill=off"}
    answer = service.operator().put("/v1/policies/current", json=wanted)
    assert dict(service.store.operation(answer.json()["id"]).body) == {"policy": "fifo/backfill=false/planner=lag"}
    for wrong, fix in [("fifo/speed=2", "has no part"), ("fifo/round_duration_s=1000", "the service's rounds take")]:
        answer = service.operator().put("/v1/policies/current", json={"policy": wrong})
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "policy"
        assert fix in answer.json()["detail"]


@pytest.mark.parametrize("name", ["no_such", "max_min_fairness?no_such=1", ""])
def test_a_policy_that_is_not_there_is_refused_and_the_choices_are_named(service: Service, name: str) -> None:
    before = service.store.snapshot().commands
    answer = service.operator().put("/v1/policies/current", json={"policy": name})
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "policy"
    assert "max_min_fairness" in answer.json()["detail"] and service.store.snapshot().commands == before


def test_an_objective_is_named_for_automatic_tiers_only_and_the_list_says_which_is_in_force(service: Service) -> None:
    operator = service.operator()
    assert operator.put("/v1/tiers/open", json={"objective": "auto"}).status_code == 201
    assert operator.get("/v1/policies").json()["auto_objectives"] == {"open": "fairness"}
    for name in ("gold", "nobody"):
        for method, path in (("PUT", "/v1/policies/current"), ("POST", "/v1/what-if")):
            answer = operator.request(method, path, json={"policy": f"hierarchical?objectives={name}:speed"})
            assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "policy", answer.text
            assert f"objectives: {name}: " in answer.json()["detail"]
    set_it = operator.put("/v1/policies/current", json={"policy": "hierarchical?objectives=open:speed"})
    assert set_it.status_code == 202, set_it.text
    service.change(policy="hierarchical?objectives=open:speed")
    assert operator.get("/v1/policies").json()["auto_objectives"] == {"open": "speed"}
    service.change(policy="")


def test_the_list_of_policies_says_which_is_in_force(service: Service) -> None:
    operator = service.operator()
    assert operator.get("/v1/policies").json()["current"] == "hierarchical"
    service.change(policy="fifo")
    assert operator.get("/v1/policies").json()["current"] == "fifo"
