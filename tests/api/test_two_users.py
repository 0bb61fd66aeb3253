"""Two users over one service, compared with a model: keys, cancels, lists; neither sees the other's jobs."""

import os
from dataclasses import dataclass, field
from typing import ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.api.conftest import Service

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
USERS = st.sampled_from([0, 1])


@dataclass
class Model:
    """What the service must know of one user: steps by job id, oldest first."""

    client: httpx.Client
    jobs: dict[str, int] = field(default_factory=dict)
    keys: dict[str, tuple[str, int]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)


class TwoUsers(RuleBasedStateMachine):
    service: ClassVar[Service]

    def __init__(self) -> None:
        super().__init__()
        self.users = [Model(self.service.user()[1]) for _ in range(2)]

    @rule(user=USERS, key=st.sampled_from(["", "a", "b"]), steps=st.sampled_from([1, 2]))
    def submit(self, user: int, key: str, steps: int) -> None:
        model = self.users[user]
        body = {"argv": ["x"], "total_steps": steps}
        answer = model.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key} if key else {})
        earlier = model.keys.get(key)
        if earlier is None:
            assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)
            model.jobs[answer.json()["id"]] = steps
            if key:
                model.keys[key] = (answer.json()["id"], steps)
        elif earlier[1] == steps:
            assert (answer.json()["id"], answer.headers["idempotency-replayed"]) == (earlier[0], "true")
        else:
            assert answer.status_code == 422

    @rule(user=USERS, owner=USERS, index=st.integers(0, 3))
    def cancel(self, user: int, owner: int, index: int) -> None:
        if index >= len(self.users[owner].jobs):
            return
        job_id = list(self.users[owner].jobs)[index]
        answer = self.users[user].client.post(f"/v1/jobs/{job_id}/cancel")
        assert answer.status_code == (202 if user == owner else 404)
        if user == owner:
            self.users[owner].cancelled.add(job_id)

    @rule(user=USERS, owner=USERS, index=st.integers(0, 3))
    def look(self, user: int, owner: int, index: int) -> None:
        if index >= len(self.users[owner].jobs):
            return
        job_id, steps = list(self.users[owner].jobs.items())[index]
        answer = self.users[user].client.get(f"/v1/jobs/{job_id}")
        assert answer.status_code == (200 if user == owner else 404)
        if user == owner:
            state = "CANCELLING" if job_id in self.users[owner].cancelled else "QUEUED"
            assert (answer.json()["total_steps"], answer.json()["state"]) == (steps, state)

    @invariant()
    def lists_hold_ones_own_newest_first(self) -> None:
        for model in self.users:
            items = model.client.get("/v1/jobs?limit=200").json()["items"]
            assert [each["id"] for each in items] == list(model.jobs)[::-1]


def test_two_users_see_their_own_jobs_as_they_left_them(service: Service) -> None:
    here = type("Here", (TwoUsers,), {"service": service})
    run_state_machine_as_test(
        here,
        settings=settings(
            max_examples=50 if FULL else 5,
            stateful_step_count=30 if FULL else 12,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_job_of_nobody_is_nobodys(service: Service, method: str) -> None:
    path = "/v1/jobs/nosuchjob" + ("/cancel" if method == "POST" else "")
    assert {each.request(method, path).status_code for each in (service.user()[1], service.operator())} == {404}
