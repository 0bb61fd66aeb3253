"""The cluster at a glance: counted by the service, of what the caller may see."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import httpx
import pytest

from api.views.memo import Memo
from api.views.overview import line_of, placements, queue, shares, summary
from gavel.ports import Snapshot
from gavel.types import Cluster, Fallback, JobState, Lease, Reason, RoundPlan, Tier
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record
from tests.builders import a_job


def a_lease(job_id: str, generation: int, *workers: str, profiling: bool = False) -> Lease:
    return Lease(
        job_id=job_id,
        generation=generation,
        combination=(job_id,),
        accelerator_type="fast",
        worker_ids=workers,
        round_index=1,
        expires_at_s=NOW_S + 10,
        is_profiling=profiling,
    )


def plans(*rounds: Sequence[Lease]) -> list[RoundPlan]:
    return [a_record(leases, {}, index).plan for index, leases in enumerate(rounds, 1)]


JOBS = {name: a_job(name, spec={"name": f"{name}-name", "user": user}) for name, user in (("a", "ann"), ("b", "bob"))}


def test_a_lease_that_was_renewed_is_one_block_and_another_token_begins_another() -> None:
    rounds = plans(
        [a_lease("a", 1, "w0")], [a_lease("a", 1, "w0")], [a_lease("a", 2, "w0")], [], [a_lease("a", 2, "w0")]
    )
    view = placements(rounds, ["w0", "w1"], JOBS, lambda _: True)
    spans = [(block.first_round, block.last_round, block.leases, block.generation) for block in view.blocks]
    assert spans == [(1, 2, 2, 1), (3, 3, 1, 2), (5, 5, 1, 2)]
    assert [each.round_index for each in view.rounds] == [1, 2, 3, 4, 5] and view.worker_ids == ["w0", "w1"]


def test_another_users_job_holds_a_worker_without_a_name() -> None:
    rounds = plans([a_lease("a", 1, "w0"), a_lease("b", 1, "w1"), a_lease("gone", 1, "w2")])
    view = placements(rounds, ["w0", "w1", "w2"], JOBS, lambda job: job.spec.user == "ann")
    assert [(block.job_id, block.name) for block in view.blocks] == [("a", "a-name"), (None, ""), (None, "")]


def test_shares_are_parts_of_all_workers_and_a_shared_worker_counts_half() -> None:
    pair = [replace(a_lease(name, 1, "w0"), combination=("a", "b")) for name in ("a", "b")]
    tiers, present = [Tier(name="gold"), Tier(name="silver")], ["w0", "w1", "w2", "w3"]
    view = shares(plans([a_lease("a", 1, "w0", "w1")], pair), tiers, {"a": "gold", "b": "silver"}, present, [])
    assert view.tiers == {"gold": [0.5, 0.125], "silver": [0.0, 0.125]}


def test_shares_of_rounds_before_workers_went_are_parts_of_the_workers_of_then() -> None:
    view = shares(plans([a_lease("a", 1, "w0", "w1")]), [Tier(name="gold")], {"a": "gold"}, ["w0"], [])
    assert view.tiers == {"gold": [1.0]}, "not twice the cluster"


def test_a_tier_has_what_the_tiers_below_it_have_and_its_share_by_weight_is_among_siblings_with_jobs() -> None:
    tiers = [
        Tier(name="vision"), Tier(name="gold", weight=3.0, parent="vision"), Tier(name="free", parent="vision"),
        Tier(name="speech"), Tier(name="empty", weight=100.0),
    ]  # fmt: skip
    jobs = [a_job("a", spec={"tier": "gold"}), a_job("b", spec={"tier": "free"}), a_job("c", spec={"tier": "speech"})]
    tier_of = {job.id: job.spec.tier for job in jobs}
    view = shares(plans([a_lease("a", 1, "w0"), a_lease("c", 1, "w1")]), tiers, tier_of, ["w0", "w1"], jobs)
    assert view.tiers == {"vision": [0.5], "gold": [0.5], "free": [0.0], "speech": [0.5], "empty": [0.0]}
    assert [view.by_weight[tier.name] for tier in tiers] == [0.5, 0.375, 0.125, 0.5, 0.0]
    assert view.jobs == {"vision": 0, "gold": 1, "free": 1, "speech": 1, "empty": 0}


def test_positions_in_the_queue_count_jobs_that_one_may_not_see() -> None:
    jobs = [
        a_job("b-late", reason=Reason.BEHIND_FAIR_SHARE),
        a_job("a-others", spec={"user": "bob"}),
        a_job("c-owed", reason=Reason.PAUSED),
        a_job("d-runs", state=JobState.LEASED),
        a_job("e-next"),
        a_job("f-elsewhere", spec={"tier": "silver"}),
    ]
    lag = {("c-owed", "fast"): 2.5, ("c-owed", "slow"): 0.0, ("b-late", "fast"): 0.0}
    record = replace(a_record([a_lease("e-next", 1, "fast-0")], {}), lag_rounds=lag)
    by_id, lines = {job.id: job for job in jobs}, Memo(line_of)
    line = lines.of(by_id, record)
    view = queue(line, lambda job: job.spec.user == "ann", tier="gold", start=0, limit=9)
    assert [(each.id, each.position) for each in view.items] == [("e-next", None), ("c-owed", 1), ("b-late", 3)]
    assert (view.waiting, view.reasons) == (3, {"PendingEvaluation": 1, "Paused": 1, "BehindFairShare": 1})
    assert [each.id for each in queue(line, lambda _: True, tier=None, start=2, limit=1).items] == ["a-others"]
    assert queue(line, lambda _: True, tier="none", start=0, limit=9).items == []
    assert lines.of(by_id, record) is line, "nothing changed that it depends on"
    for arguments in ((by_id, None), (by_id | {"z": a_job("z")}, record)):
        assert list(lines.of(*arguments)) != list(line)


@pytest.fixture(scope="module")
def ann(service: Service) -> httpx.Client:
    """Has a job that runs, renewed once, and one that waits; another user has one that waits."""
    _, ann = service.user()
    running, waiting = (str(ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 9}).json()["id"]) for _ in "ab")
    service.user()[1].post("/v1/jobs", json={"argv": ["x"], "total_steps": 9})
    service.change(round=a_record([a_lease(running, 1, "fast-0")], {running: [1.0, 0.0]}))
    job = replace(service.store.job(running), state=JobState.LEASED, generation=1)
    service.change(job, round=a_record([a_lease(running, 1, "fast-0")], {running: [1.0, 0.0], waiting: [0.0, 0.5]}, 2))
    return ann


def test_the_summary_counts_what_is_there_and_what_the_caller_may_see(service: Service, ann: httpx.Client) -> None:
    own, whole = ann.get("/v1/summary").json(), service.operator().get("/v1/summary").json()
    assert own["jobs"] == {"RUNNING": 1, "QUEUED": 1} and whole["jobs"] == {"RUNNING": 1, "QUEUED": 2}
    assert (own["workers"], own["busy_workers"], whole["tiers"]) == (6, 1, {"gold": 3})
    assert (own["round"]["round_index"], own["round"]["leases"], own["round"]["renewed_leases"]) == (2, 1, 1)
    assert (own["solve"]["solver"], own["solve"]["is_fallback"], own["worst"]) == ("clarabel", False, None)


def test_placements_of_a_node_or_a_job_or_the_first_workers(service: Service, ann: httpx.Client) -> None:
    job_id = ann.get("/v1/jobs?state=RUNNING").json()["items"][0]["id"]
    of_job = ann.get(f"/v1/placements?job_id={job_id}").json()
    assert (of_job["worker_ids"], [block["leases"] for block in of_job["blocks"]]) == (["fast-0"], [2])
    few = ann.get("/v1/placements?limit=2&node=node-0").json()
    assert (few["worker_ids"], few["workers"]) == (["fast-0", "fast-1"], 6)
    assert ann.get("/v1/placements?node=none").json()["worker_ids"] == []
    assert service.user()[1].get(f"/v1/placements?job_id={job_id}").status_code == 404
    assert ann.get("/v1/shares").json()["tiers"]["gold"] == pytest.approx([1 / 6, 1 / 6])
    assert [each["position"] for each in ann.get("/v1/queue").json()["items"]] == [1]


def test_a_user_is_told_how_many_jobs_a_tier_has_and_its_share_among_all(service: Service, ann: httpx.Client) -> None:
    own, whole = ann.get("/v1/shares").json(), service.operator().get("/v1/shares").json()
    assert own == whole and own["jobs"] == {"gold": 3} | {name: 0 for name in own["jobs"] if name != "gold"}
    assert own["by_weight"]["gold"] == 1.0, "the only tier with jobs"
    assert ann.get("/v1/summary").json()["tiers"] == {"gold": 2}, "her own"


def test_the_placements_of_a_job_reach_back_to_its_last_lease(start: Callable[..., Service]) -> None:
    """1. A gang holds two workers in round 1, and ends. 2. Fifty rounds later it is asked where it ran."""
    service = start()
    _, ann = service.user()
    ended, waiting = (str(ann.post("/v1/jobs", json={"argv": ["x"], "total_steps": 9}).json()["id"]) for _ in "ab")
    job = replace(service.store.job(ended), state=JobState.COMPLETED, generation=1, started_at_s=NOW_S)
    over = replace(job, accounted_until_s=NOW_S + 9.5, finished_at_s=NOW_S + 11)
    for index in range(1, 51):
        leases = [a_lease(ended, 1, "fast-0", "fast-1")] if index == 1 else []
        record = a_record(leases, {}, index)
        plan = replace(record.plan, starts_at_s=NOW_S + 10.0 * (index - 1))
        service.change(*[over] * (index == 50), round=replace(record, plan=plan))
    of_job = ann.get(f"/v1/placements?job_id={ended}&rounds=5").json()
    assert [(block["worker_id"], block["first_round"]) for block in of_job["blocks"]] == [("fast-0", 1), ("fast-1", 1)]
    assert [each["round_index"] for each in of_job["rounds"]] == [1]
    never = ann.get(f"/v1/placements?job_id={waiting}&rounds=5").json()
    assert (never["blocks"], never["rounds"][-1]["round_index"]) == ([], 50)


def test_a_policy_that_fails_is_named_with_what_went_wrong_and_since_when() -> None:
    why = Fallback(policy="mine", error="mine raised SystemExit: 3", since_s=60.0, instead="last allocation kept")
    record = a_record([], {})
    record = replace(record, allocation=replace(record.allocation, is_fallback=True, fallback=why))
    snapshot = Snapshot(version=1, jobs={}, tiers={}, round_records=(record,))
    view = summary(snapshot, Cluster(), ["disk is full"], lambda _: True, 100.0)
    assert view.solve is not None and view.solve.fallback is not None
    assert view.solve.fallback.model_dump() == {
        "policy": "mine", "error": why.error, "since_s": 60.0, "instead": "last allocation kept",
    }  # fmt: skip
    expected = "policy mine fails since 1970-01-01 00:01:00 UTC: mine raised SystemExit: 3. In force instead: last"
    assert view.notes[0].startswith(expected) and view.notes[1:] == ["disk is full"]
