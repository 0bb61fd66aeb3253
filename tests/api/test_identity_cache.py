"""The cache between requests: it never hides a change of this process, and drops an entry after RECENT_S seconds."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from api.access.auth import digest, new_token
from api.access.identity_cache import RECENT_S, Credential, IdentityCache
from api.services import Services
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.errors import StoreUnavailable
from gavel.store.sql import SqlStore
from gavel.types import Identity, Scope, Tier, User
from tests.api.conftest import NOW_S, Service
from tests.api.test_submit import PROGRAM


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[SqlStore, SqlStore]]:
    """Two processes' stores of one database."""
    url = f"sqlite:///{tmp_path / 'gavel.db'}"
    with closing(SqlStore(url)) as here, closing(SqlStore(url)) as there:
        here.put_user(User(name="ann", tiers=("default",)), by="op", now_s=1.0)
        yield here, there


def identity_cache_of(store: SqlStore, clock: ManualClock) -> IdentityCache:
    services = Services(
        store=store,
        settings=Settings(),
        clock=clock,
        read_log=lambda _, offset, __: (b"", offset),
        is_scheduler_alive=lambda: True,
    )
    return IdentityCache(services, clock.now_s)


def test_what_another_process_takes_back_is_gone_after_the_stated_time(stores: tuple[SqlStore, SqlStore]) -> None:
    here, there = stores
    clock, token = ManualClock(), digest(new_token())
    recent = identity_cache_of(here, clock)

    async def identity() -> Identity | None:
        return await recent.identity(Credential(token))

    async def scenario() -> None:
        assert await identity() is None
        there.add_token(token, user="ann", scope=Scope.USER, now_s=1.0)
        held = await identity()  # a new token is good at once
        assert held is not None and held.tiers == ("default",)
        there.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
        there.put_user(User(name="ann", tiers=("gold",)), by="op", now_s=1.0)
        there.revoke_token("ann", there.tokens("ann")[0].id, by="op", now_s=1.0)
        clock.advance(RECENT_S * 0.99)
        assert await identity() == held
        clock.advance(RECENT_S * 0.01)
        assert await identity() is None
        assert "gold" in (await recent.rules()).tiers

    asyncio.run(scenario())


def test_what_this_process_changes_is_known_at_once(stores: tuple[SqlStore, SqlStore]) -> None:
    here, _ = stores
    recent, token = identity_cache_of(here, ManualClock()), digest(new_token())

    async def scenario() -> None:
        here.add_token(token, user="ann", scope=Scope.USER, now_s=1.0)
        assert (await recent.identity(Credential(token))) is not None and "gold" not in (await recent.rules()).tiers
        here.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
        assert "gold" in (await recent.rules()).tiers
        here.revoke_token("ann", here.tokens("ann")[0].id, by="op", now_s=1.0)
        assert await recent.identity(Credential(token)) is None

    asyncio.run(scenario())


class Watched(SqlStore):
    """Counts the lookups of tokens; the first one finds nobody if `fails`."""

    looks, fails = 0, 0

    def identify(self, token_hash: str) -> Identity | None:
        self.looks += 1
        if self.looks <= self.fails:
            raise StoreUnavailable("the database cannot be read now")
        return super().identify(token_hash)


def test_those_who_ask_at_once_share_one_look_and_one_who_gives_up_takes_nothing(tmp_path: Path) -> None:
    token = digest(new_token())

    async def scenario(store: Watched) -> None:
        recent = identity_cache_of(store, ManualClock())
        asked = [asyncio.create_task(recent.identity(Credential(token))) for _ in range(20)]
        await asyncio.sleep(0)  # until all of them wait
        asked[0].cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert all(isinstance(each, Identity) for each in answers[1:]) and store.looks == 1

    with closing(Watched(f"sqlite:///{tmp_path / 'gavel.db'}")) as store:
        store.add_token(token, user="ann", scope=Scope.USER, now_s=1.0)
        asyncio.run(scenario(store))


def test_a_look_that_fails_fails_those_who_shared_it_and_nobody_after(tmp_path: Path) -> None:
    token = digest(new_token())

    async def scenario(store: Watched) -> None:
        recent = identity_cache_of(store, ManualClock())
        answers = await asyncio.gather(*(recent.identity(Credential(token)) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) for each in answers)
        assert await recent.identity(Credential(token)) is not None

    with closing(Watched(f"sqlite:///{tmp_path / 'gavel.db'}")) as store:
        store.fails = 1
        store.add_token(token, user="ann", scope=Scope.USER, now_s=1.0)
        asyncio.run(scenario(store))


def test_a_submit_that_nobody_waits_for_any_more_is_still_made(service: Service) -> None:
    """A client disconnects before its answer. The job is stored, and its key returns it."""
    name, ann = service.user()
    headers = {"Idempotency-Key": "gone"}
    with pytest.raises(httpx.TimeoutException):
        ann.post("/v1/jobs", json=PROGRAM, headers=headers, timeout=httpx.Timeout(5, read=1e-4))
    job = ann.post("/v1/jobs", json=PROGRAM, headers=headers).json()
    assert [each["id"] for each in ann.get("/v1/jobs").json()["items"]] == [job["id"]]
    assert job["user"] == name and service.store.job(job["id"]).submitted_at_s == NOW_S
