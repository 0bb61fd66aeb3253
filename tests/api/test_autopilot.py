"""The autopilot over REST: what is in force and why, what operators set, its decisions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gavel.types.autopilot import AutopilotMode, AutopilotSetting
from tests.api.conftest import NOW_S, Service
from tests.autopilot_history import COMPOSITIONS, keep, three_decisions

Start = Callable[..., Service]


@pytest.fixture(scope="module")
def reader(service: Service) -> httpx.Client:
    """A user of a service whose autopilot has made three decisions."""
    keep(service.store, *three_decisions(NOW_S))
    service.change(policy="shortest_job_first", autopilot=AutopilotSetting(mode=AutopilotMode.AUTO, epoch_s=3600.0))
    return service.user()[1]


def test_a_service_without_decisions_says_so(start: Start) -> None:
    service = start()
    answer = service.operator().get("/v1/autopilot").json()
    assert answer["setting"] == {"mode": "advise", "goal": "mean_jct", "candidates": [], "epoch_s": 28800, "pinned": ""}
    assert answer["in_force"] == "hierarchical" and answer["newest"] is None and answer["regrets"] == []
    assert answer["sentence"].startswith("hierarchical is in force, as it was set.")
    assert answer["candidates"][0] == "hierarchical", "the policy of the settings is the safe one"
    assert "mean_jct" in answer["measures"]
    assert service.operator().get("/v1/autopilot/decisions").json() == {"items": [], "next_before": None}


def test_everybody_reads_what_is_in_force_and_why(reader: httpx.Client) -> None:
    answer = reader.get("/v1/autopilot").json()
    assert answer["in_force"] == "shortest_job_first" and answer["newest"]["number"] == 2
    assert answer["sentence"] == (
        "shortest_job_first is in force: every other composition is behind, or breaks a limit."
    )
    assert (answer["next_at_s"], answer["waits_for"]) == (None, "no job is unfinished")
    assert answer["cpu_s_last_hour"] == 2.5 and answer["failures_in_a_row"] == 0
    assert [each["composition"] for each in answer["newest"]["scores"]] == list(COMPOSITIONS)
    best = answer["regrets"][0]
    assert (best["composition"], best["epochs"]) == ("shortest_job_first", 2)
    assert best["regret"] == pytest.approx(2.0 / 1.7 - 1)


def test_decisions_are_paged_and_each_has_what_its_epoch_did_cost(reader: httpx.Client) -> None:
    first = reader.get("/v1/autopilot/decisions", params={"limit": 2}).json()
    assert [each["number"] for each in first["items"]] == [2, 1] and first["next_before"] == 1
    rest = reader.get("/v1/autopilot/decisions", params={"limit": 2, "before": 1}).json()
    assert [each["number"] for each in rest["items"]] == [0] and rest["next_before"] is None
    costs = [(each["predicted"], each["actual"]) for each in (*first["items"], *rest["items"])]
    assert costs == [(0.5, None), (0.5, 1.0), (0.5, 1.0)], "the epoch of the newest one is not over"


def test_one_decision_has_all_that_was_weighed(reader: httpx.Client) -> None:
    decision = reader.get("/v1/autopilot/decisions/0").json()
    assert decision["actual"] == 1.0 and decision["is_followed"] and decision["incumbent"] == "max_min_fairness"
    assert decision["features"] == {"arrivals an hour": 0.0, "jobs": 1.0, "demand over workers": 2.0}
    assert decision["scores"][1]["gain"] == 0.31 and decision["scores"][1]["error"] == 0.04
    absent = reader.get("/v1/autopilot/decisions/77")
    assert absent.status_code == 404 and "77" in absent.json()["detail"]


def test_what_an_operator_sets_is_a_command_in_one_spelling(service: Service) -> None:
    body = {"mode": "auto", "goal": " money=1 ,mean_jct=2", "candidates": ["fifo/backfill=off", "fifo/backfill=0"]}
    answer = service.operator().put("/v1/autopilot", json=body)
    assert answer.status_code == 202 and answer.json()["state"] == "pending"
    command = service.store.operation(answer.json()["id"])
    assert (command.kind, command.subject) == ("autopilot.set", "autopilot")
    assert dict(command.body) == {"mode": "auto", "goal": "mean_jct=2,money", "candidates": ["fifo/backfill=false"]}


@pytest.mark.parametrize(
    ("body", "field", "fix"),
    [
        ({"mode": "fly"}, "mode", "'off', 'advise', 'auto' or 'pin'"),
        ({"goal": "mean_jtc"}, "goal", "did you mean mean_jct?"),
        ({"candidates": ["fifo", "fifi"]}, "candidates.1", "did you mean fifo?"),
        ({"pinned": "fifo/speed=3"}, "pinned", "has no part"),
        ({"mode": "pin"}, "pinned", "give it"),
        ({"epoch_s": 0.5}, "epoch_s", "greater than or equal to 1"),
        ({"weights": 1}, "weights", ""),
    ],
)
def test_a_mistake_is_refused_with_its_field_and_the_fix(
    service: Service, body: dict[str, Any], field: str, fix: str
) -> None:
    before = service.store.snapshot().commands
    answer = service.operator().put("/v1/autopilot", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"].removeprefix("body.") == field and fix in answer.text
    assert service.store.snapshot().commands == before


def test_the_sentence_follows_mode_and_outcome(start: Start) -> None:
    service = start()
    operator = service.operator()
    advice, *_ = three_decisions(NOW_S)
    advice = replace(advice, is_followed=False, mode=AutopilotMode.ADVISE)

    def sentence() -> str:
        return str(operator.get("/v1/autopilot").json()["sentence"])

    keep(service.store, advice)
    service.change(policy="max_min_fairness")
    assert sentence() == (
        "max_min_fairness is in force. The autopilot advises shortest_job_first: "
        "it gains 31.0 % +- 4.0 over max_min_fairness, tried on 8 futures."
    )
    for number in (1, 2):
        keep(service.store, replace(advice, number=number, scores=(), failure="it took longer than 3 s"))
    answer = operator.get("/v1/autopilot").json()
    assert answer["failures_in_a_row"] == 2 and answer["newest"]["predicted"] is None
    assert answer["sentence"] == (
        "max_min_fairness stays in force. The newest decision failed: it took longer than 3 s."
    )
    service.change(autopilot=AutopilotSetting(mode=AutopilotMode.PIN, pinned="fifo"), policy="fifo")
    assert sentence().startswith("fifo is pinned") and operator.get("/v1/autopilot").json()["next_at_s"] is None
    service.change(autopilot=AutopilotSetting(mode=AutopilotMode.OFF))
    assert sentence() == "fifo is in force, as it was set. The autopilot is off."


def test_a_score_of_a_single_future_has_no_error(start: Start) -> None:
    service = start()
    first, *_ = three_decisions(NOW_S)
    keep(service.store, replace(first, scores=(replace(first.scores[0], error=float("inf"), futures=1),)))
    newest = service.operator().get("/v1/autopilot").json()["newest"]
    assert newest["scores"][0]["error"] is None


def test_the_metrics_have_mode_decisions_failures_switches_and_cost(start: Start) -> None:
    service = start()

    def values() -> dict[str, float]:
        lines = service.operator().get("/metrics").text.splitlines()
        pairs = (line.removeprefix("gavel_autopilot_").rsplit(" ", 1) for line in lines if "gavel_autopilot_" in line)
        return {name: float(value) for name, value in pairs if not name.startswith("#")}

    assert values() == {
        **{'mode{mode="advise"}': 1, 'mode{mode="auto"}': 0, 'mode{mode="off"}': 0, 'mode{mode="pin"}': 0},
        **dict.fromkeys(("decisions_total", "failures_in_a_row", "failures_last_day", "switches_last_day"), 0),
        **dict.fromkeys(("cpu_seconds_last_hour", "gain_advised"), 0),
    }
    switch, stay, _ = three_decisions(NOW_S)
    old = replace(switch, at_s=NOW_S - 90_000)
    keep(service.store, old, replace(stay, failure="killed", scores=()), replace(switch, number=2, at_s=NOW_S - 60))
    service.change(autopilot=AutopilotSetting(mode=AutopilotMode.AUTO))
    after = values()
    assert after['mode{mode="auto"}'] == 1 and after["decisions_total"] == 3 and after["gain_advised"] == 0.31
    assert (after["failures_last_day"], after["switches_last_day"], after["failures_in_a_row"]) == (1, 1, 0)
    assert after["cpu_seconds_last_hour"] == 2.5, "of the newest one only"
