"""The decision about replicas: what holds whatever happens to them, and how a rollout comes to an end."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.services.decision import FAILURES_MAX, Replica, Wanted, advanced, decide
from gavel.types import ServiceStatus
from tests.conftest import IS_FULL

EXAMPLES = 1000 if IS_FULL else 60
DRAIN_S = 5.0


class Service:
    """Replicas that the decision is carried out for; what a cluster does to them is told from outside."""

    def __init__(self, replicas: int, min_available: int, surge: int) -> None:
        self.wanted = Wanted(replicas=replicas, min_available=min_available, surge=surge, version=1, drain_s=DRAIN_S)
        self.now_s, self.made = 0.0, 0
        self.replicas: dict[str, Replica] = {}

    @property
    def ready(self) -> int:
        return sum(each.is_ready and each.leaving_at_s is None for each in self.replicas.values())

    def act(self) -> bool:
        """Carry out what is decided now; return whether that is anything."""
        acts = decide(self.wanted, list(self.replicas.values()), self.now_s)
        before = self.ready
        for name in acts.leave:
            self.replicas[name] = replace(self.replicas[name], leaving_at_s=self.now_s)
        for name in acts.end:
            leaving_at_s = self.replicas.pop(name).leaving_at_s
            assert leaving_at_s is None or leaving_at_s + DRAIN_S <= self.now_s
        for _ in range(acts.make):
            self.made += 1
            name = f"r{self.made:04}"
            self.replicas[name] = Replica(id=name, version=self.wanted.version, made_at_s=self.now_s)
        least = min(self.wanted.min_available, self.wanted.replicas)
        assert self.ready >= min(before, least), "a planned act takes replicas that have to be ready"
        return bool(acts.make or acts.leave or acts.end)

    def get_ready(self, name: str) -> None:
        self.replicas[name] = replace(self.replicas[name], is_running=True, is_ready=True, was_ready=True)

    def settle(self) -> None:
        """Let everything that is made get ready, and time pass, until nothing is left to do."""
        for _ in range(400):
            acted = self.act()
            for name in [name for name, each in self.replicas.items() if not each.is_ready]:
                self.get_ready(name)
                acted = True
            self.now_s += DRAIN_S
            if not acted and not any(each.leaving_at_s is not None for each in self.replicas.values()):
                return
        raise AssertionError(f"it does not settle: {self.replicas}")


@st.composite
def services(draw: st.DrawFn) -> Service:
    replicas = draw(st.integers(0, 5))
    min_available = draw(st.integers(0, replicas))
    surge = draw(st.integers(0 if min_available < replicas else 1, 3))
    return Service(replicas, min_available, surge)


@settings(max_examples=EXAMPLES)
@given(services(), st.data())
def test_planned_acts_keep_min_available_and_come_to_an_end(service: Service, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(0, 25), label="steps")):
        names = sorted(service.replicas)
        match data.draw(
            st.sampled_from(("act", "ready", "version", "drain", "time", "lost", "sick", "scale")), label="what"
        ):
            case "ready" if names:
                service.get_ready(data.draw(st.sampled_from(names)))
            case "version":
                service.wanted = replace(service.wanted, version=service.wanted.version + 1)
            case "drain" if names:
                name = data.draw(st.sampled_from(names))
                service.replicas[name] = replace(service.replicas[name], must_go=True)
            case "time":
                service.now_s += data.draw(st.sampled_from((1.0, DRAIN_S, 60.0)))
            case "lost" if names:
                del service.replicas[data.draw(st.sampled_from(names))]
            case "sick" if names:
                name = data.draw(st.sampled_from(names))
                service.replicas[name] = replace(service.replicas[name], is_ready=False)
            case "scale":
                count = data.draw(st.integers(service.wanted.min_available, 5))
                service.wanted = replace(service.wanted, replicas=count, surge=max(1, service.wanted.surge))
            case _:
                pass
        service.act()
        staying = [each for each in service.replicas.values() if each.leaving_at_s is None]
        fresh = [each for each in staying if each.version == service.wanted.version and not each.must_go]
        assert len(fresh) <= max(service.wanted.replicas, len(staying))
    service.settle()
    assert len(service.replicas) == service.wanted.replicas == service.ready
    assert all(each.version == service.wanted.version and not each.must_go for each in service.replicas.values())


def test_the_new_replica_is_ready_before_the_old_one_leaves() -> None:
    service = Service(replicas=1, min_available=1, surge=1)
    service.settle()
    service.wanted = replace(service.wanted, version=2)
    service.act()
    assert sorted(each.version for each in service.replicas.values()) == [1, 2]
    assert not service.act()
    service.get_ready("r0002")
    service.act()
    assert [each.leaving_at_s for each in service.replicas.values()] == [service.now_s, None]
    assert not service.act(), "it has time for the requests that it has"
    service.now_s += DRAIN_S
    service.act()
    assert list(service.replicas) == ["r0002"]


def test_without_a_surge_an_old_replica_leaves_first() -> None:
    service = Service(replicas=2, min_available=1, surge=0)
    service.settle()
    service.wanted = replace(service.wanted, version=2)
    service.act()
    assert sum(each.leaving_at_s is not None for each in service.replicas.values()) == 1
    service.settle()
    assert [each.version for each in service.replicas.values()] == [2, 2]


def test_a_version_is_given_up_after_failures_or_when_it_is_late_and_only_with_one_to_go_back_to() -> None:
    wanted = Wanted(replicas=1, min_available=1, surge=1, version=2, drain_s=DRAIN_S)
    rolling = ServiceStatus(stable=1, wanted=2)

    def after(status: ServiceStatus, failed: int, now_s: float) -> ServiceStatus:
        return advanced(status, wanted, (), failed=failed, now_s=now_s, rollout_s=600.0)

    assert after(rolling, 0, 599.0).refused == 0
    assert after(rolling, 0, 600.0).refused == 2
    status = rolling
    for _ in range(FAILURES_MAX):
        assert status.refused == 0
        status = after(status, 1, 1.0)
    assert status.refused == 2
    assert status.retry_at_s > 1.0
    assert after(replace(rolling, stable=0), FAILURES_MAX, 1.0).refused == 0


@pytest.mark.parametrize("failures", [0, 1, 5])
def test_a_clock_that_was_set_back_holds_no_service_up(failures: int) -> None:
    """The version came, and replicas failed, by a clock an hour ahead: new ones wait no longer than for a failure."""
    wanted = Wanted(replicas=2, min_available=0, surge=1, version=2, drain_s=DRAIN_S)
    ahead = ServiceStatus(wanted=2, stable=1, progress_at_s=3600.0, failures=failures, retry_at_s=3616.0)
    status = advanced(ahead, wanted, (), failed=0, now_s=10.0, rollout_s=600.0)
    assert status.progress_at_s == 10.0
    assert status.retry_at_s == 10.0 + (2.0 ** (failures - 1) if failures else 0.0)
    in_order = ServiceStatus(wanted=2, stable=1, progress_at_s=5.0, failures=1, retry_at_s=10.5)
    assert advanced(in_order, wanted, (), failed=0, now_s=10.0, rollout_s=600.0) is in_order
