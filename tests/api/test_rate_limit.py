"""How often a user may ask."""

from collections.abc import Callable

import pytest
from fastapi_problem.error import Problem
from hypothesis import given
from hypothesis import strategies as st

from api.access.rate_limit import BURST_S, RateLimit
from gavel.types import Identity, Scope
from tests.api.conftest import Service

ANN = Identity(user="ann", scope=Scope.USER)


def is_let_in(rates: RateLimit, caller: Identity = ANN) -> bool:
    try:
        rates.count(caller)
    except Problem as refused:
        assert refused.status == 429
        return False
    return True


@given(
    st.floats(0.5, 100.0),
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60),
)
def test_whenever_a_user_asks_no_more_get_in_than_a_burst_and_the_rate(rate: float, pauses_s: list[float]) -> None:
    now_s = 0.0
    rates = RateLimit(rate, lambda: now_s)
    let_in = 0
    for pause_s in pauses_s:
        now_s += pause_s
        let_in += is_let_in(rates)
    assert let_in <= max(1.0, BURST_S * rate) + rate * now_s + 1e-6


@given(st.floats(0.5, 100.0))
def test_who_waits_as_told_gets_in(rate: float) -> None:
    now_s = 0.0
    rates = RateLimit(rate, lambda: now_s)
    while is_let_in(rates):
        pass
    with pytest.raises(Problem) as refused:
        rates.count(ANN)
    now_s += max(float(refused.value.headers["Retry-After"]), 1.0 / rate)  # type: ignore[index]
    assert is_let_in(rates)


def test_one_user_s_haste_costs_another_nothing_and_operators_have_no_limit() -> None:
    rates = RateLimit(1.0, lambda: 0.0)
    while is_let_in(rates):
        pass
    assert is_let_in(rates, Identity(user="bob", scope=Scope.USER))
    assert all(is_let_in(rates, Identity(user="ann", scope=Scope.OPERATOR)) for _ in range(100))


def test_a_user_in_too_much_haste_is_told_when_to_come_back(start: Callable[..., Service]) -> None:
    service = start(requests_per_user_per_s=0.1)
    _, hasty = service.user()
    first, second = hasty.get("/v1/jobs"), hasty.get("/v1/jobs")
    assert first.status_code == 200
    assert (second.status_code, second.json()["type"]) == (429, "limit-reached")
    assert 1 <= int(second.headers["Retry-After"]) <= 10
    _, patient = service.user()
    assert patient.get("/v1/jobs").status_code == 200
