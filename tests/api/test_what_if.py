"""Previews, what-ifs and verifications over REST: answered by another process, and nothing is changed."""

import time
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from api import what_if
from gavel.ports import Changes
from tests.api.conftest import Service, wait_until
from tests.mechanism.world import World

RATES = {"fast": 10.0, "slow": 5.0}


@pytest.fixture(scope="module")
def busy(service: Service) -> tuple[Service, httpx.Client, list[str]]:
    """Eight jobs in gold and silver on two fast and four slow workers."""
    _, ann = service.user("gold", "silver")
    body = {"argv": ["x"], "total_steps": 1000, "throughputs": RATES}
    answers = [ann.post("/v1/jobs", json=body | {"tier": tier}) for tier in ("gold", "silver") for _ in range(4)]
    return service, ann, [str(each.json()["id"]) for each in answers]


def of_tier(answer: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(each for each in answer["tiers"] if each["tier"] == name)
    return row


def test_a_preview_says_what_each_tier_and_job_would_have_and_changes_nothing(
    busy: tuple[Service, httpx.Client, list[str]],
) -> None:
    service, _, ids = busy
    operator, before = service.operator(), service.store.tiers()
    effects = operator.post("/v1/tiers/silver/preview", json={"weight": 9.0}).json()
    gold, silver = of_tier(effects, "gold"), of_tier(effects, "silver")
    assert gold["share_before"] == pytest.approx(0.5, abs=0.05)
    assert silver["share_after"] >= silver["share_before"] - 0.01
    assert sum(gold["workers_before"].values()) + sum(silver["workers_before"].values()) == pytest.approx(6.0)
    assert {job["job_id"] for job in effects["jobs"]} == set(ids) and effects["jobs_total"] == len(ids)
    assert all(job["simulated_finish_at_s_before"] and not job["is_simulated"] for job in effects["jobs"])
    assert service.store.tiers() == before


def test_rules_that_a_tier_cannot_have_are_refused_as_in_a_change(
    busy: tuple[Service, httpx.Client, list[str]],
) -> None:
    operator = busy[0].operator()
    too_much = operator.post("/v1/tiers/silver/preview", json={"guarantee": 0.9})
    assert too_much.status_code == 422 and "at most 0.5 is left" in too_much.text
    assert operator.post("/v1/tiers/silver/preview", json={"objective": "luck"}).status_code == 422
    for wrong in ({"policy": "luck"}, {"nodes_gone": ["nowhere"]}, {"job": {"argv": ["x"], "total_steps": 0}}):
        assert operator.post("/v1/what-if", json=wrong).status_code == 422, wrong


def test_a_what_if_shows_its_user_s_jobs_and_leaves_others_out(busy: tuple[Service, httpx.Client, list[str]]) -> None:
    service, _, ids = busy
    _, bob = service.user()
    body = {
        "policy": "max_min_fairness",
        "nodes_added": [{"count": 3, "accelerator_type": "fast", "workers": 2}],
        "job": {"argv": ["x"], "total_steps": 500, "tier": "gold", "throughputs": RATES},
    }
    answer = bob.post("/v1/what-if", json=body)
    effects = answer.json()
    assert (effects["capacity_before"], effects["capacity_after"]) == ({"fast": 2, "slow": 4}, {"fast": 8, "slow": 4})
    assert (effects["policy_before"], effects["policy_after"]) == ("hierarchical", "max_min_fairness")
    (new,) = effects["jobs"]
    assert new["job_id"] == "what-if" and new["target_before"] is None and new["is_simulated"]
    assert new["simulated_finish_at_s_after"] > service.clock.now_s()
    assert not any(each in answer.text for each in ids) and len(service.store.snapshot().jobs) == len(ids)


def never(question: object) -> None:
    """A question that takes until it is ended."""
    time.sleep(600)


def test_whoever_goes_away_ends_the_computation(
    busy: tuple[Service, httpx.Client, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ann, _ = busy
    monkeypatch.setattr(what_if, "effects", never)
    for _ in range(what_if.AT_ONCE + 1):  # more than could be asked if one of them went on
        with pytest.raises(httpx.ReadTimeout):
            ann.post("/v1/what-if", json={}, timeout=1.0)
        wait_until(lambda: what_if._slots._value == what_if.AT_ONCE)


def test_no_more_processes_than_agreed_answer_at_once(busy: tuple[Service, httpx.Client, list[str]]) -> None:
    _, ann, _ = busy
    with ExitStack() as held:
        for _ in range(what_if.AT_ONCE):
            held.enter_context(what_if._slot())
        answer = ann.post("/v1/what-if", json={})
        assert answer.status_code == 503 and answer.headers["retry-after"]
        assert "ask again in a moment" in answer.json()["detail"]


def test_a_round_is_verified_from_its_stored_inputs(start: Any) -> None:
    world, service = World(), start()
    ids = [world.submit(total_steps=300) for _ in range(6)]
    world.run(lambda: world.clock.now_s() > 25.0)
    for index in (1, 2):
        service.store.commit(service.store.snapshot().version, Changes(round=world.store.round(index)))
    verdict = service.operator().post("/v1/rounds/2/verify").json()
    assert verdict["same"] and verdict["differences"] == [] and verdict["leases"] == 4, verdict
    assert service.operator().post("/v1/rounds/9/verify").status_code == 404 and ids
