"""What a write of ephemeral resources decides: whole outcomes and the sentences of refusals are compared."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.errors import Conflict, InvalidRequest, InvalidResource, NotFound, StaleVersion
from gavel.mechanism.commands.resource_commands import AUDITED_MAX, RESOURCES_MAX, TTL_MAX_S, write
from gavel.mechanism.tick import Outcome, Tick
from gavel.ports import Snapshot
from gavel.types import ApplicationResource, EphemeralResource, GangState, Observation, Operation
from tests.mechanism.test_reconcile import a_gang
from tests.mechanism.world import a_cluster_of_nodes
from tests.refusals import refused

NOW_S = 100.0
CLUSTER = a_cluster_of_nodes(n0="fast", n1="fast fast", n2="slow")


def there(name: str = "lb", node: str = "n0", *, job_id: str | None = None, held: int = 0, **over: Any) -> Any:
    """A resource of `app`, or of the job, as the store has it."""
    fields = {"capacity": 2, "owner": job_id or "app", "lease_expires_at_s": 150.0, "generation": 4}
    resource = EphemeralResource(name=name, node=node, **{**fields, **over})
    return ApplicationResource(resource=resource, job_id=job_id, held=held)


def a_tick(*resources: ApplicationResource, held: dict[tuple[str, str], int] | None = None, **over: Any) -> Tick:
    """Job `a` runs on n0 and n1; a gang of it has ended on n2, where one of job `b` runs."""
    gangs = (
        replace(a_gang(), worker_ids=("n1-1", "n0-0")),
        replace(a_gang(state=GangState.ENDED), worker_ids=("n2-0",)),
        replace(a_gang(job_id="b"), worker_ids=("n2-0",)),
    )
    seen = Observation(observed_at_s=NOW_S, cluster=CLUSTER, gangs=gangs, held=held or {}, **over)
    tick = Tick.of(NOW_S, seen, Snapshot(version=1, jobs={}, tiers={}))
    tick.resources = resources
    return tick


def an_item(**over: Any) -> dict[str, Any]:
    return {"owner": "app", "name": "lb", "nodes": "n0", "ttl_s": 60.0, "capacity": 2, **over}


def written(tick: Tick, *items: dict[str, Any], job_id: str | None = None) -> Outcome:
    """By the command with sequence number 7, so that what is new has generation 14."""
    body: dict[str, Any] = {"resources": list(items)} | ({"job_id": job_id} if job_id else {})
    return write(
        tick, Operation(id="o", sequence=7, kind="resources.set", subject="r", body=body, by="x", created_at_s=90.0)
    )


def nodes_of(outcome: Outcome) -> list[str]:
    return [each["node"] for each in outcome.result["resources"]]


def test_all_that_is_written_is_wanted_shown_and_audited() -> None:
    another = there("other")
    outcome = written(a_tick(another), an_item(nodes=["n1", "n0"]), an_item(owner="zoo", name="db", capacity=1))
    made = [
        there(node="n1", generation=14, lease_expires_at_s=160.0),
        there(generation=14, lease_expires_at_s=160.0),
        there("db", owner="zoo", capacity=1, generation=14, lease_expires_at_s=160.0),
    ]
    fields = ("owner", "name", "node", "capacity", "generation", "lease_expires_at_s")
    assert outcome == Outcome(
        result={"resources": [{name: getattr(each.resource, name) for name in fields} for each in made]},
        resources=(another, *made),
        after={"names": ["app/lb", "zoo/db"]},
    )


def test_only_some_names_of_a_large_batch_are_audited() -> None:
    names = [f"r{index:02}" for index in range(AUDITED_MAX + 5)]
    outcome = written(a_tick(), *(an_item(name=name) for name in reversed(names)))
    assert outcome.after == {"names": [f"app/{name}" for name in names[:AUDITED_MAX]]}


def test_a_renewal_keeps_the_generation_and_the_units_that_are_held() -> None:
    before = there(held=1)
    renewed = replace(before, resource=replace(before.resource, lease_expires_at_s=160.0))
    assert written(a_tick(before), an_item()).resources == (renewed,)
    assert written(a_tick(before), an_item(ttl_s=50.0)).resources == (before,)


@pytest.mark.parametrize("item", [an_item(ttl_s=49.0), an_item(capacity=1)], ids=["a shorter lease", "a capacity"])
def test_any_other_change_gets_a_new_generation(item: dict[str, Any]) -> None:
    (after,) = written(a_tick(there(held=1)), item).resources or ()
    changed: dict[str, Any] = {
        "capacity": item["capacity"],
        "lease_expires_at_s": NOW_S + item["ttl_s"],
        "generation": 14,
    }
    assert after == there(held=1, **changed)


def test_a_capacity_of_zero_deletes_also_what_is_not_there() -> None:
    outcome = written(a_tick(there(), there(node="n1")), an_item(capacity=0), an_item(name="none", capacity=0))
    assert outcome.resources == (there(node="n1"),)
    assert [(each["name"], each["generation"]) for each in outcome.result["resources"]] == [("lb", 14), ("none", 14)]


def test_a_job_writes_on_all_nodes_of_its_gang_and_is_not_audited() -> None:
    outcome = written(a_tick(), an_item(owner="a", nodes={}), job_id="a")
    over: dict[str, Any] = {"generation": 14, "lease_expires_at_s": 160.0}
    assert outcome.resources == tuple(there(node=node, job_id="a", **over) for node in ("n0", "n1"))
    assert outcome.after is None


# --- the nodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "num_nodes", "expected"),
    [
        ("n1", None, ["n1"]),
        (["n2", "n0"], None, ["n2", "n0"]),
        (["n2", "n0"], 1, ["n2"]),
        ({}, None, ["n0", "n1", "n2"]),
        ({}, 2, ["n0", "n1"]),
        ({"node/worker-n1-1": 1}, None, []),
        ({"node/worker-n1-0": 1}, None, ["n1"]),
        ({"node/worker-n1-0": 2}, None, []),
        ({"app/lb": 2}, None, ["n0", "n2"]),
        ({"app/lb": 3}, None, ["n2"]),
        ({"app/lb": 2, "node/worker-n0-0": 1}, None, ["n0"]),
        ({"zoo/lb": 1}, None, []),
    ],
)
def test_nodes_are_named_or_have_so_much_free(nodes: Any, num_nodes: int | None, expected: list[str]) -> None:
    tick = a_tick(
        there(capacity=3, held=1),
        there(node="n1", held=1),
        there(node="n2", capacity=3),
        held={("node/worker-n1-1", "n1"): 1, ("node/worker-n1-0", "n0"): 1},
    )
    assert nodes_of(written(tick, an_item(name="new", nodes=nodes, num_nodes=num_nodes))) == expected


def test_what_an_item_writes_counts_for_the_next_one() -> None:
    outcome = written(a_tick(), an_item(nodes="n1"), an_item(name="new", nodes={"app/lb": 2}))
    assert nodes_of(outcome) == ["n1", "n1"]


# --- refusals ---------------------------------------------------------------------------------------------------


def test_nodes_that_are_not_there_or_of_others_are_refused() -> None:
    with refused(NotFound, "there is no node 'n7'; nodes: n0, n1, n2"):
        written(a_tick(), an_item(nodes=["n0", "n7"]))
    with refused(InvalidRequest, "nodes: job a does not hold n2; it holds n0, n1"):
        written(a_tick(), an_item(owner="a", nodes="n2"), job_id="a")
    with refused(Conflict, "job c holds no node now; it may set resources while it runs"):
        written(a_tick(), an_item(owner="c"), job_id="c")


@pytest.mark.parametrize("needs", [{"lb": 1}, {"app/lb": 0}])
def test_a_requirement_without_sense_is_refused(needs: dict[str, int]) -> None:
    with pytest.raises(InvalidResource):
        written(a_tick(), an_item(nodes=needs))


@pytest.mark.parametrize(
    ("expected", "is_refused"),
    [
        ({"expect_generation": 4, "expect": {"capacity": 2, "free": 1}}, ""),
        ({"expect_generation": None, "expect": None}, ""),
        ({"expect_generation": 0}, "4"),
        ({"expect": {"capacity": 2, "free": 2}}, "{'capacity': 2, 'free': 1}"),
    ],
)
def test_a_resource_that_is_not_as_expected_is_refused_with_what_it_is(expected: Any, is_refused: str) -> None:
    item = an_item(capacity=5) | expected
    if not is_refused:
        assert written(a_tick(there(held=1)), item).resources
        return
    with refused(StaleVersion, f"app/lb on n0 is at {is_refused} now: read it again"):
        written(a_tick(there(held=1)), item)


def test_what_is_not_there_has_no_generation_and_no_units() -> None:
    none = {"expect_generation": 0, "expect": {"capacity": 0, "free": 0}}
    assert written(a_tick(there("other")), an_item() | none).resources
    with refused(StaleVersion, "app/lb on n0 is at 0 now: read it again"):
        written(a_tick(), an_item(expect_generation=1))


def test_leases_have_an_end_within_a_week() -> None:
    sentence = "ttl_s: must be above 0 and at most 604800 seconds"
    assert written(a_tick(), an_item(ttl_s=TTL_MAX_S), an_item(name="b", ttl_s=0.1)).resources
    for ttl_s in (0, -1.0, TTL_MAX_S + 0.1):
        with refused(InvalidResource, sentence):
            written(a_tick(), an_item(ttl_s=ttl_s))


def test_owners_of_the_scheduler_are_refused() -> None:
    with refused(InvalidResource, "owner: 'gavel' owns the scheduler's gangs; choose another owner"):
        written(a_tick(), an_item(owner="gavel"))
    with refused(InvalidResource, "owner: 'node' owns the physical resources; choose another owner"):
        written(a_tick(), an_item(owner="node"))


def test_there_are_no_more_names_on_nodes_than_the_limit() -> None:
    tick = a_tick(*(there(f"r{index}") for index in range(RESOURCES_MAX - 2)))
    assert len(written(tick, an_item(nodes=["n0", "n1"])).resources or ()) == RESOURCES_MAX
    with refused(InvalidResource, "resources: 10000 names are the most there may be; delete or wait for some"):
        written(tick, an_item(nodes={}))
