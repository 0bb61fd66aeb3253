"""Reservations are decided one after the other, and the scheduler hears of each before it commits a round."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import pytest

from gavel.errors import InvalidRequest, StaleVersion
from gavel.ports import Changes, Commitments, JobEdit
from gavel.store.sql import SqlStore
from gavel.types import Job, JobSpec
from tests.builders import a_spec
from tests.store.conftest import OpenStore

PLACES = 3
SESSION = {"preemptible": False, "longest_s": 60.0, "reserved_at_s": 100.0}


class Places:
    """A rule that has so many places, whenever."""

    def accepted(self, spec: JobSpec, commitments: Commitments) -> JobSpec:
        if sum(job.spec.reserved_at_s is not None for job in commitments.jobs) >= PLACES:
            raise InvalidRequest("reserved_at_s", "no place is left")
        return replace(spec, reserved_type="fast")

    def check_extension(self, job: Job, longest_s: float, commitments: Commitments) -> None:
        if len(commitments.jobs) > 1:
            raise InvalidRequest("by_s", "others are there")


def reserve(store: SqlStore) -> str:
    try:
        return store.submit(a_spec(**SESSION), key=None, body_hash="", now_s=1.0).job.spec.reserved_type
    except InvalidRequest:
        return ""


def test_many_at_once_of_two_processes_never_get_more_than_there_is(open_store: OpenStore) -> None:
    stores = [open_store(reservation_rule=Places()) for _ in range(2)]
    with ThreadPoolExecutor(12) as pool:
        given = list(pool.map(reserve, stores * 6))
    assert sorted(given) == [""] * (12 - PLACES) + ["fast"] * PLACES
    assert len(stores[0].non_preemptible_jobs()) == PLACES


def test_a_round_that_was_decided_without_it_is_not_committed(open_store: OpenStore) -> None:
    store = open_store(reservation_rule=Places())
    version = store.snapshot().version
    store.submit(a_spec(), key=None, body_hash="", now_s=1.0)
    store.commit(version, Changes())  # other submits are no reason
    version = store.snapshot().version
    reserve(store)
    with pytest.raises(StaleVersion):
        store.commit(version, Changes())
    store.commit(store.snapshot().version, Changes())


def test_the_rule_hears_of_the_composition_in_force(open_store: OpenStore) -> None:
    rule = Mock(wraps=Places())
    store = open_store(reservation_rule=rule)
    reserve(store)
    store.commit(store.snapshot().version, Changes(policy="fifo/round_duration_s=40"))
    reserve(store)
    policies = [call.args[1].policy for call in rule.accepted.call_args_list]
    assert policies == ["", "fifo/round_duration_s=40"]


def test_so_it_is_with_a_longer_session(open_store: OpenStore) -> None:
    store = open_store(reservation_rule=Places())
    job = store.submit(a_spec(**SESSION), key=None, body_hash="", now_s=1.0).job
    version = store.snapshot().version
    store.edit_job(job.id, JobEdit(longest_s=90.0), expected_version=None, now_s=1.0)
    with pytest.raises(StaleVersion):
        store.commit(version, Changes())
    reserve(store)
    with pytest.raises(InvalidRequest):
        store.edit_job(job.id, JobEdit(longest_s=120.0), expected_version=None, now_s=1.0)


def test_a_refused_one_is_not_stored_and_its_key_may_be_used_again(open_store: OpenStore) -> None:
    store = open_store(reservation_rule=Places())
    for _ in range(PLACES):
        reserve(store)
    with pytest.raises(InvalidRequest):
        store.submit(a_spec(**SESSION), key="k", body_hash="h", now_s=1.0)
    assert store.submit(a_spec(), key="k", body_hash="other", now_s=1.0).created


def test_an_array_and_a_batch_cannot_be_reserved(open_store: OpenStore) -> None:
    store = open_store(reservation_rule=Places())
    with pytest.raises(InvalidRequest, match="alone"):
        store.submit_many([a_spec(**SESSION)] * 2, key=None, body_hash="", now_s=1.0)
