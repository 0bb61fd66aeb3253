"""What a request of a user changes of a job, and what the audit log and the job's history hold of it."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from gavel.errors import Conflict, InvalidRequest, StaleVersion
from gavel.ports import AuditEntry, JobEdit, JobEvent
from gavel.store.rules import (
    edited,
    request_records,
    revocation_audit_entry,
    tenant_audit_entry,
    token_audit_entries,
)
from gavel.types import BearerToken, DemandSpec, Identity, Scope, ServiceSpec, Tier, User
from gavel.types.services import Check, Serving
from tests.builders import a_job
from tests.refusals import refused

SERVICE = ServiceSpec(
    replicas=3,
    replicas_min=2,
    replicas_max=4,
    min_available=1,
    serving=Serving(port=8000, readiness=Check()),
)
DEMAND = DemandSpec(rates={"fast": 10.0})


def changes(job_spec: dict[str, Any], edit: JobEdit) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The fields of the specification that the edit replaced, and what is recorded of it: before and after."""
    job = a_job(spec=job_spec)
    spec, before, after = edited(job, edit, None)
    old, new = ({name: getattr(each, name) for name in each.__dataclass_fields__} for each in (job.spec, spec))
    return {name: new[name] for name in new if new[name] != old[name]}, dict(before), dict(after)


def test_an_edit_changes_what_it_names_and_records_what_differs() -> None:
    edit = JobEdit(weight=2.5, priority=-1, labels={"team": "text"})
    was = {"weight": 1.0, "priority": 0, "labels": {}}
    now = {"weight": 2.5, "priority": -1, "labels": {"team": "text"}}
    assert changes({}, edit) == (now, was, now)
    assert changes({"weight": 2.5, "priority": -1}, edit) == (
        {"labels": {"team": "text"}},
        {"labels": {}},
        {"labels": {"team": "text"}},
    )
    assert changes(now, edit) == changes(now, JobEdit()) == ({}, {}, {})


def test_an_edit_may_set_a_number_to_zero() -> None:
    assert changes({"priority": 3}, JobEdit(priority=0)) == ({"priority": 0}, {"priority": 3}, {"priority": 0})


def test_a_job_that_is_no_service_takes_nothing_that_an_edit_says_of_services() -> None:
    edit = JobEdit(replicas=3, replicas_min=9, program={"argv": ("other",)})
    assert changes({}, edit) == ({}, {}, {})


def test_an_edit_is_of_the_version_that_was_read() -> None:
    job = a_job(version=4)
    assert edited(job, JobEdit(), 4) == edited(job, JobEdit(), None)
    with refused(StaleVersion, "job j1 is at version 4, not 3: read it again"):
        edited(job, JobEdit(), 3)


def test_a_session_can_be_extended_until_it_is_ending() -> None:
    session = a_job("s1", spec={"longest_s": 60.0})
    assert changes({"longest_s": 60.0}, JobEdit(longest_s=90.0)) == (
        {"longest_s": 90.0},
        {"longest_s": 60.0},
        {"longest_s": 90.0},
    )
    ending = replace(session, over="nobody uses it")
    assert edited(ending, JobEdit(weight=2.0), None)[0].weight == 2.0
    with refused(Conflict, "session s1 is ending and cannot be extended: nobody uses it"):
        edited(ending, JobEdit(longest_s=90.0), None)


def test_of_a_service_the_numbers_that_change_are_recorded_and_nothing_else_of_it() -> None:
    more = replace(SERVICE, replicas=4)
    assert changes({"service": SERVICE}, JobEdit(replicas=4)) == ({"service": more}, {"replicas": 3}, {"replicas": 4})
    assert changes({"service": SERVICE}, JobEdit(replicas=3, weight=2.0)) == (
        {"weight": 2.0},
        {"weight": 1.0},
        {"weight": 2.0},
    )
    bounds = JobEdit(replicas_min=3, replicas_max=3)
    was, now = {"replicas_min": 2, "replicas_max": 4}, {"replicas_min": 3, "replicas_max": 3}
    assert changes({"service": SERVICE}, bounds) == ({"service": replace(SERVICE, **now)}, was, now)  # type: ignore[arg-type]


def test_a_new_program_is_a_new_version_and_its_variables_are_not_recorded() -> None:
    program = {"argv": ("serve", "new"), "env": {"PASSWORD": "secret"}}
    spec, before, after = changes({"service": SERVICE}, JobEdit(program=program))
    assert spec == {"service": replace(SERVICE, version=2), **program}
    assert (before, after) == ({"version": 1}, {"version": 2})


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        (JobEdit(demand=30.0), {"stated_demand": "measured"}, {"stated_demand": 30.0}),
        (JobEdit(headroom=0.5), {"headroom": 0.2}, {"headroom": 0.5}),
        (JobEdit(rates={"": 7.0}), {"rate": {"fast": 10.0}}, {"rate": 7.0}),
    ],
)
def test_a_changed_demand_is_recorded_as_its_user_states_it(
    edit: JobEdit, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert changes({"service": replace(SERVICE, demand=DEMAND)}, edit)[1:] == (before, after)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (
            JobEdit(replicas_min=5),
            "replicas_min: 5 is more than replicas_max, 4; change both, or another one",
        ),
        (
            JobEdit(replicas=5),
            "replicas: service s1 has 2 to 4 replicas, and would have 5; give a number between, or change the bounds,"
            " too",
        ),
        (
            JobEdit(replicas=1),
            "replicas: service s1 has 2 to 4 replicas, and would have 1; give a number between, or change the bounds,"
            " too",
        ),
    ],
    ids=["bounds", "too many", "too few"],
)
def test_the_replicas_of_a_service_stay_between_its_bounds(edit: JobEdit, sentence: str) -> None:
    service = a_job("s1", spec={"service": SERVICE})
    with refused(InvalidRequest, sentence):
        edited(service, edit, None)
    for replicas in (2, 4):
        assert changes({"service": SERVICE}, JobEdit(replicas=replicas))[2] == {"replicas": replicas}


def test_a_request_is_in_the_history_of_the_job_and_in_the_audit_log() -> None:
    before, after = {"weight": 1.0, "priority": 0}, {"weight": 2.0, "priority": 5}
    event, entry = request_records(a_job(), "job.edited", 7.0, "op", before, after)
    message = "weight 1.0 -> 2.0, priority 0 -> 5"
    assert event == JobEvent(job_id="j1", at_s=7.0, kind="job.edited", message=message)
    assert entry == AuditEntry(
        at_s=7.0, by="op", subject="job/j1", before=before, after=after, action="job.edited", user="ann"
    )


def test_a_request_that_nobody_else_made_is_by_the_user_of_the_job() -> None:
    event, entry = request_records(a_job(), "cancel.requested", 7.0, "", None, {})
    assert (event.message, entry.by, entry.before) == ("", "ann", None)


def test_a_change_of_a_tier_is_recorded_whole_and_touches_no_user() -> None:
    gold, heavier = Tier(name="gold"), Tier(name="gold", weight=2.0)
    entry = AuditEntry(
        at_s=7.0,
        by="op",
        subject="tier/gold",
        before=asdict(gold),
        after=asdict(heavier),
        action="tier.changed",
    )
    assert tenant_audit_entry("tier", gold, heavier, "op", 7.0) == entry
    assert tenant_audit_entry("tier", None, heavier, "op", 7.0) == replace(entry, before=None)


def test_a_change_of_a_user_touches_that_user() -> None:
    ann = User(name="ann", tiers=("gold",))
    assert tenant_audit_entry("user", None, ann, "op", 7.0) == AuditEntry(
        at_s=7.0,
        by="op",
        subject="user/ann",
        before=None,
        after=asdict(ann),
        action="user.changed",
        user="ann",
    )


@pytest.mark.parametrize(("by", "shown"), [("op", "op"), ("", "ann")])
def test_a_new_token_is_recorded_but_for_those_of_jobs(by: str, shown: str) -> None:
    assert token_audit_entries(Identity(user="ann", scope=Scope.JOB, job_id="j1"), by, 7.0) == ()
    assert token_audit_entries(Identity(user="ann", scope=Scope.VIEWER), by, 7.0) == (
        AuditEntry(
            at_s=7.0,
            by=shown,
            subject="user/ann",
            before=None,
            after={"scope": "viewer"},
            action="token.created",
            user="ann",
        ),
    )


def test_a_revoked_token_is_recorded_by_its_id_and_scope() -> None:
    token = BearerToken(id="0a1b", user="ann", scope=Scope.NODE, created_at_s=1.0)
    assert revocation_audit_entry(token, "op", 7.0) == AuditEntry(
        at_s=7.0,
        by="op",
        subject="user/ann",
        before={"id": "0a1b", "scope": "node"},
        after={},
        action="token.revoked",
        user="ann",
    )
