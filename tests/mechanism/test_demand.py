"""How many replicas follow a demand: at once up, late down, within bounds, ahead of what earlier days had."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.services.decision import Replica, Wanted, decide, types_to_make
from gavel.mechanism.services.demand import (
    LEAD_MAX_S,
    NEWEST_DAY,
    PARTS,
    SLOT_S,
    SLOTS,
    START_S,
    DemandSeen,
    followed,
    forecast_of,
    next_look_s,
)
from gavel.types import Check, DemandSpec, DemandStatus, ServiceSpec, Serving
from gavel.types.services import ANY_TYPE, DEMAND_MAX
from tests.conftest import IS_FULL

EXAMPLES = 600 if IS_FULL else 60
DAY_S = 86_400
DOWN_AFTER_S = 300.0
DRAIN_S = 5.0
PLENTY = {"K80": 9, "V100": 9}


def a_service(
    rates: Mapping[str, float], least: int = 1, most: int = 10, stated: float | None = None, available: int = 1
) -> ServiceSpec:
    demand = DemandSpec(rates=rates, stated=stated, headroom=0.2, down_after_s=DOWN_AFTER_S)
    return ServiceSpec(
        replicas=1,
        replicas_min=least,
        replicas_max=most,
        min_available=available,
        serving=Serving(port=0, readiness=Check()),
        demand=demand,
    )


def demand_of(service: ServiceSpec) -> DemandSpec:
    assert service.demand
    return service.demand


def after(
    status: DemandStatus, service: ServiceSpec, now_s: float, demand: float | None, **seen: object
) -> DemandStatus:
    """What is wanted when all that was wanted is ready."""
    rates = service.demand.rates if service.demand else {}
    fields = {"room": dict.fromkeys(rates, 9), "room_now": dict.fromkeys(rates, 9), "ready": status.replicas or {}}
    return followed(status, service, DemandSeen(now_s=now_s, demand=demand, **(fields | seen)))  # type: ignore[arg-type]


def count(status: DemandStatus) -> int:
    return sum((status.replicas or {}).values())


ONE_RATE = {ANY_TYPE: 10.0}


def test_nothing_is_wanted_before_a_demand_is_known_and_then_headroom_is_kept() -> None:
    service = a_service(ONE_RATE)
    assert after(DemandStatus(), service, 0.0, None).replicas is None
    status = after(DemandStatus(), service, 0.0, 40.0)
    assert (status.replicas, status.needed, status.bound) == ({ANY_TYPE: 5}, 48.0, "")
    assert after(status, service, 1.0, None) == replace(status, recent=after(status, service, 1.0, None).recent)


def test_it_grows_at_once_and_gets_smaller_only_after_the_lower_demand_has_lasted() -> None:
    service = a_service(ONE_RATE)
    status = after(DemandStatus(), service, 0.0, 10.0)
    status = after(status, service, 50.0, 40.0)
    assert count(status) == 5
    status = after(status, service, 51.0, 10.0)
    assert (count(status), status.bound) == (5, "down_after_s")
    status = after(status, service, 50.0 + DOWN_AFTER_S, 10.0)
    assert count(status) == 5, "the higher demand is not yet that old"
    at_s = next_look_s(status, demand_of(service), 50.0 + DOWN_AFTER_S)
    assert at_s <= 51.0 + DOWN_AFTER_S * (1 + 2 / PARTS)
    assert count(after(status, service, 51.0 + DOWN_AFTER_S * (1 + 2 / PARTS), 10.0)) == 2


def test_zero_replicas_come_back_with_a_stated_demand() -> None:
    service = a_service(ONE_RATE, least=0)
    status = after(DemandStatus(), service, 0.0, 0.0)
    assert status.replicas == {}
    assert count(after(status, service, 1.0, 5.0)) == 1


@pytest.mark.parametrize(
    ("demand", "least", "most", "room", "wanted", "bound"),
    [
        (1000.0, 1, 3, 9, 3, "replicas_max"),
        (1000.0, 1, 8, 4, 4, "room"),
        (1.0, 4, 8, 9, 4, "replicas_min"),
        (DEMAND_MAX, 1, 8, 9, 8, "replicas_max"),
    ],
)
def test_the_best_that_can_be_is_wanted_and_what_bounds_it_is_said(
    demand: float, least: int, most: int, room: int, wanted: int, bound: str
) -> None:
    service, there = a_service(ONE_RATE, least, most), {ANY_TYPE: room}
    status = after(DemandStatus(), service, 0.0, demand, room=there, room_now=there)
    assert (count(status), status.bound) == (wanted, bound)
    assert after(status, service, 1.0, demand, room=there, room_now=there).replicas == status.replicas


def test_types_on_which_training_loses_least_per_request_are_taken_first() -> None:
    service = a_service({"V100": 40.0, "K80": 9.0})
    assert after(DemandStatus(), service, 0.0, 15.0, loss={"V100": 1.0, "K80": 0.2}).replicas == {"K80": 2}
    assert after(DemandStatus(), service, 0.0, 15.0, loss={"V100": 1.0, "K80": 0.9}).replicas == {"V100": 1}


def test_faster_types_take_the_place_of_slower_ones_where_the_number_is_bounded() -> None:
    service = a_service({"V100": 40.0, "K80": 9.0}, most=3)
    loss = {"V100": 1.0, "K80": 0.1}
    status = after(DemandStatus(), service, 0.0, 20.0, loss=loss)
    assert status.replicas == {"K80": 3}
    status = after(status, service, 1.0, 40.0, loss=loss)
    assert status.replicas == {"K80": 2, "V100": 1}


def test_nothing_leaves_before_those_that_stay_are_ready() -> None:
    service = a_service({"V100": 40.0, "K80": 9.0})
    loss = {"V100": 1.0, "K80": 0.3}
    status = replace(after(DemandStatus(), service, 0.0, 5.0, loss=loss), replicas={"K80": 1})
    status = after(status, service, 1.0, 35.0, loss=loss, ready={"K80": 1})
    assert (status.replicas or {}).get("K80", 0) >= 1, "a V100 alone is enough, but is not ready"
    later = after(status, service, 2.0, 35.0, loss=loss)
    assert demand_of(service).answered(later.replicas or {}) >= 42.0


def test_ready_replicas_give_way_to_others_of_which_training_loses_much_less_once_these_are_ready() -> None:
    service = a_service({"V100": 40.0, "K80": 20.0})
    status = after(DemandStatus(), service, 0.0, 30.0)
    assert status.replicas == {"V100": 1}
    loss = {"V100": 1.0, "K80": 0.3}
    status = after(status, service, 1.0, 30.0, loss=loss)
    assert status.replicas == {"K80": 2, "V100": 1}
    status = after(status, service, 2.0, 30.0, loss=loss, ready={"V100": 1, "K80": 1})
    assert status.replicas == {"K80": 2, "V100": 1}, "the others are not ready"
    status = after(status, service, 3.0, 30.0, loss=loss)
    assert status.replicas == {"K80": 2}
    for now_s, replicas in ((4.0, {"K80": 2}), (2.0 + DOWN_AFTER_S, {"K80": 2, "V100": 1})):
        status = after(status, service, now_s, 30.0, loss={"V100": 1.0, "K80": 0.9})
        assert status.replicas == replicas, "an exchange is not soon followed by another one"


def test_a_type_on_which_a_replica_waits_gives_way_to_another_one() -> None:
    service = a_service({"V100": 40.0, "K80": 9.0})
    loss = {"V100": 5.0, "K80": 0.1}
    status = after(DemandStatus(), service, 0.0, 15.0, loss=loss)
    assert status.replicas == {"K80": 2}
    stuck = {"K80": 1, "V100": 9}
    status = followed(
        status, service, DemandSeen(now_s=9.0, demand=15.0, room=PLENTY | {"K80": 1}, room_now=stuck, loss=loss)
    )
    assert status.replicas == {"K80": 1, "V100": 1}


def test_the_forecast_is_the_shape_of_earlier_days_at_the_recent_level() -> None:
    service = a_service(ONE_RATE, most=100)
    status, at_s = DemandStatus(), 0.0
    for day in range(3):
        for slot in range(SLOTS):
            at_s = day * DAY_S + slot * SLOT_S + 1.0
            status = after(status, service, at_s, 80.0 if slot == 100 else 20.0)
    before_s = 3 * DAY_S + 100 * SLOT_S - START_S + 1.0
    assert after(status, service, before_s, 20.0).forecast == pytest.approx(80.0)
    assert after(status, service, before_s - SLOT_S, 20.0).forecast == pytest.approx(20.0)
    assert after(status, service, before_s, 30.0).forecast == pytest.approx(120.0), (
        "all is one and a half times as much"
    )
    assert after(status, service, before_s, 900.0).forecast == pytest.approx(160.0), "a burst says less of a later hour"
    lead = replace(status, start_s=(5.0,))
    assert after(lead, service, before_s, 20.0).forecast == pytest.approx(20.0), "its replicas start in 5 s"
    assert NEWEST_DAY < 1


def test_a_replica_that_waited_for_workers_does_not_make_the_lead_long() -> None:
    status = after(DemandStatus(), a_service(ONE_RATE), 0.0, 10.0, started_s=(5 * LEAD_MAX_S,))
    assert status.lead_s == LEAD_MAX_S


def test_zero_replicas_come_back_with_a_forecast() -> None:
    """Nobody measures anything: what earlier days had is all that is known."""
    daily = tuple(50.0 if slot == 10 else 0.0 for slot in range(SLOTS))
    service = a_service(ONE_RATE, least=0)
    status = DemandStatus(level=0.0, slot=(1, 0.0), daily=daily, replicas={})
    before_s = DAY_S + 10 * SLOT_S - START_S
    assert count(after(status, service, before_s - 10.0, None)) == 0
    assert count(after(status, service, before_s + 1.0, None)) == 6
    assert forecast_of(replace(status, daily=()), DemandSeen(now_s=0.0, demand=None), DOWN_AFTER_S) == 0.0


class Followed:
    """A service under both decisions, demand and replicas; what a cluster does to it is told from outside."""

    def __init__(self, service: ServiceSpec) -> None:
        self.service = service
        self.status = DemandStatus()
        self.demand, self.now_s, self.made = 10.0, 0.0, 0
        self.replicas: dict[str, tuple[str, Replica]] = {}
        self.enough_at_s: dict[int, float] = {}  # when so many replicas were last needed

    @property
    def staying(self) -> list[Replica]:
        return [each for _, each in self.replicas.values() if each.leaving_at_s is None]

    def ready(self) -> dict[str, int]:
        types = [name for name, each in self.replicas.values() if each.is_ready and each.leaving_at_s is None]
        return {name: types.count(name) for name in types}

    def act(self) -> None:
        before, ready_before = dict(self.status.replicas or {}), sum(self.ready().values())
        seen = DemandSeen(now_s=self.now_s, demand=self.demand, ready=self.ready(), room=PLENTY, room_now=PLENTY)
        self.status = followed(self.status, self.service, seen)
        mix = self.status.replicas or {}
        self._check(before, mix)
        wanted = Wanted(
            replicas=sum(mix.values()),
            min_available=self.service.available_of(sum(mix.values())),
            surge=self.service.surge,
            version=1,
            drain_s=DRAIN_S,
            mix=mix,
        )
        acts = decide(wanted, [each for _, each in self.replicas.values()], self.now_s)
        for name in types_to_make(wanted, [each for _, each in self.replicas.values()])[: acts.make]:
            self.made += 1
            key = f"r{self.made:04}"
            self.replicas[key] = name, Replica(id=key, version=1, accelerator_type=name, made_at_s=self.now_s)
        for key in acts.leave:
            name, each = self.replicas[key]
            self.replicas[key] = name, replace(each, leaving_at_s=self.now_s)
        for key in acts.end:
            del self.replicas[key]
        assert sum(self.ready().values()) >= min(ready_before, wanted.min_available)
        assert len(self.staying) <= self.service.replicas_max + self.service.surge

    def _check(self, before: Mapping[str, int], mix: Mapping[str, int]) -> None:
        """Bounds hold, and it answers what was asked for in the last `down_after_s` seconds."""
        assert self.service.demand
        assert self.service.replicas_min <= sum(mix.values()) <= self.service.replicas_max
        self.asked = [*getattr(self, "asked", []), (self.now_s, self.demand)]
        lasting = max(demand for at_s, demand in self.asked if at_s > self.now_s - DOWN_AFTER_S)
        if self.service.demand.answered(mix) < self.service.demand.answered(before):
            is_best = sum(mix.values()) == self.service.replicas_max
            assert self.service.demand.answered(mix) >= lasting * 1.2 * (1 - 1e-9) or is_best


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_whatever_happens_bounds_hold_and_scale_down_waits(data: st.DataObject) -> None:
    least = data.draw(st.integers(0, 3), label="replicas_min")
    most = data.draw(st.integers(max(1, least), 12), label="replicas_max")
    available = data.draw(st.integers(0, most), label="min_available")
    there = Followed(a_service({"V100": 40.0, "K80": 9.0}, least, most, available=available))
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        names = sorted(there.replicas)
        match data.draw(st.sampled_from(("demand", "ready", "all", "time", "lost", "sick")), label="what"):
            case "demand":
                there.demand = data.draw(st.sampled_from((0.0, 5.0, 10.0, 39.0, 120.0, 900.0)), label="demand")
            case "ready" if names:
                there.replicas[names[-1]] = _got_ready(there.replicas[names[-1]])
            case "all":
                there.replicas = {key: _got_ready(each) for key, each in there.replicas.items()}
            case "time":
                there.now_s += data.draw(st.sampled_from((1.0, 9.0, 60.0, DOWN_AFTER_S, 4000.0)), label="seconds")
            case "lost" if names:
                del there.replicas[data.draw(st.sampled_from(names), label="lost")]
            case "sick" if names:
                name, each = there.replicas[names[0]]
                there.replicas[names[0]] = name, replace(each, is_ready=False)
            case _:
                pass
        there.act()


def _got_ready(replica: tuple[str, Replica]) -> tuple[str, Replica]:
    return replica[0], replace(replica[1], is_running=True, is_ready=True, was_ready=True)
