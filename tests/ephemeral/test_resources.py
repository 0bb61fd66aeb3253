import pytest

from gavel.ephemeral import Availability, GangRequest, Member, ResourceTable, match
from gavel.errors import Conflict, InvalidResource, NotFound, StaleVersion
from gavel.types import EphemeralResource


def a_table(nodes: int = 2, workers: int = 2) -> ResourceTable:
    table = ResourceTable()
    for index in range(nodes):
        table.add_node(f"n{index}", {f"worker-{index}-{worker}": 1 for worker in range(workers)} | {"cpu": workers})
    return table


def a_resource(**over: object) -> EphemeralResource:
    fields: dict[str, object] = {
        "name": "gang-x-1",
        "node": "n0",
        "capacity": 2,
        "owner": "gavel",
        "lease_expires_at_s": 60.0,
        "generation": 1,
    }
    return EphemeralResource(**(fields | over))  # type: ignore[arg-type]


def a_gang(job: str, *requires: dict[str, int]) -> GangRequest:
    return GangRequest((job, 1), tuple(Member(each) for each in requires))


def nodes_of(written: tuple[EphemeralResource, ...]) -> list[str]:
    return [each.node for each in written]


def state(table: ResourceTable, node: str, full: str, now_s: float = 0.0) -> Availability | None:
    return table.get_cluster_state(now_s)[node].get(full)


def test_physical_resources_belong_to_the_node_and_never_expire() -> None:
    table = a_table(nodes=1, workers=1)
    assert table.get_cluster_state(1e12) == {
        "n0": {"node/worker-0-0": Availability(1, 1), "node/cpu": Availability(1, 1)}
    }
    assert table.expire(1e12) == ()
    assert table.resources(0.0) == ()


def test_a_task_waits_until_its_resource_appears() -> None:
    table, request = a_table(), a_gang("x", {"app/ready": 1})
    assert match(table, [request], 0.0) == ()
    assert table.missing(request, 0.0) == "app/ready is not there (needs 1)"
    table.set_resource("ready", 1, "n1", 60, "app", 0.0)
    assert [each.nodes for each in match(table, [request], 0.0)] == [("n1",)]


def test_a_resource_set_first_serves_a_task_that_comes_later() -> None:
    table = a_table()
    table.set_resource("ready", 1, "n1", 60, "app", 0.0)
    assert [each.nodes for each in match(table, [a_gang("x", {"app/ready": 1})], 5.0)] == [("n1",)]


def test_what_waits_is_told_who_holds_what_it_misses() -> None:
    table = a_table()
    match(table, [a_gang("x", {"node/worker-0-0": 1})], 0.0)
    waits = a_gang("y", {"node/cpu": 1, "node/worker-0-0": 1})
    assert table.missing(waits, 0.0) == "node/worker-0-0 has 0 free, needs 1; held by job x (generation 1)"
    apart = a_gang("z", {"node/worker-0-1": 1, "node/worker-1-0": 1})
    assert table.missing(apart, 0.0) == "no node has free together: node/worker-0-1, node/worker-1-0"
    assert table.missing(a_gang("w", {"node/worker-0-1": 1}), 0.0) == ""


def test_why_a_gang_waits_is_found_on_the_nodes_that_have_what_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of gangs wait at once: each of them may not look at thousands of nodes."""
    table, looks = a_table(nodes=200), list[str]()
    free = ResourceTable.free

    def counted(self: ResourceTable, full: str, node: str, now_s: float) -> int:
        looks.append(node)
        return free(self, full, node, now_s)

    monkeypatch.setattr(ResourceTable, "free", counted)
    assert table.missing(a_gang("w", {"node/worker-7-0": 1}), 0.0) == ""
    assert set(looks) == {"n7"}
    looks.clear()
    assert table.missing(a_gang("w", {"node/worker-7-0": 1, "node/cpu": 1}), 0.0) == ""
    assert len(looks) <= 200 + 3, "the free cores of the cluster are summed up; then only its own node is looked at"


def test_a_resource_may_go_to_one_node_to_several_or_to_those_with_enough_free() -> None:
    table = a_table(nodes=4)
    match(table, [GangRequest(("x", 1), (Member({"node/cpu": 1}, node="n1"),))], 0.0)
    assert nodes_of(table.set_resource("a", 1, "n2", 60, "app", 0.0)) == ["n2"]
    assert nodes_of(table.set_resource("b", 1, ["n3", "n0"], 60, "app", 0.0)) == ["n3", "n0"]
    assert nodes_of(table.set_resource("c", 1, {"node/cpu": 2}, 60, "app", 0.0)) == ["n0", "n2", "n3"]
    assert nodes_of(table.set_resource("d", 1, {"node/cpu": 2}, 60, "app", 0.0, num_nodes=1)) == ["n0"]
    assert nodes_of(table.set_resource("e", 1, {"node/cpu": 3}, 60, "app", 0.0)) == []


def test_capacity_zero_admits_nobody_and_takes_nothing_from_holders() -> None:
    table = a_table()
    table.set_resource("q", 2, "n0", 60, "app", 0.0)
    match(table, [a_gang("x", {"app/q": 1})], 0.0)
    table.set_resource("q", 0, "n0", 60, "app", 0.0)
    assert match(table, [a_gang("y", {"app/q": 1})], 0.0) == ()
    assert table.holds(("x", 1)) and state(table, "n0", "app/q") == Availability(0, -1)
    table.release(("x", 1))
    assert state(table, "n0", "app/q") is None


def test_a_shrink_below_what_is_held_kills_nobody_and_leaves_no_unit_behind() -> None:
    table = a_table()
    table.set_resource("q", 3, "n0", 60, "app", 0.0)
    match(table, [a_gang(job, {"app/q": 1}) for job in ("x", "y", "z")], 0.0)
    table.set_resource("q", 1, "n0", 60, "app", 0.0)
    assert state(table, "n0", "app/q") == Availability(1, -2)
    for job in ("x", "y", "z"):
        table.release((job, 1))
    assert state(table, "n0", "app/q") == Availability(1, 1)


def test_an_expired_resource_acts_as_capacity_zero_before_it_is_collected() -> None:
    table = a_table()
    table.set_resource("q", 2, "n0", 10, "app", 0.0)
    match(table, [a_gang("x", {"app/q": 1})], 9.9)
    assert match(table, [a_gang("y", {"app/q": 1})], 10.0) == ()
    assert state(table, "n0", "app/q", 10.0) == Availability(0, -1)
    assert table.expire(9.9) == ()
    assert table.expire(10.0) == ("app/q",)
    assert table.expire(10.0) == ()
    assert table.holds(("x", 1))


def test_writing_the_same_again_renews_the_lease_in_place_and_never_shortens_it() -> None:
    table = a_table()
    table.set_resources([a_resource()], now_s=0.0)
    table.set_resources([a_resource(lease_expires_at_s=90.0)], now_s=1.0)
    table.set_resources([a_resource(lease_expires_at_s=70.0)], now_s=2.0)
    assert table.resources(89.0) == (a_resource(lease_expires_at_s=90.0),)


def test_an_older_generation_or_another_meaning_of_the_same_one_is_refused() -> None:
    table = a_table()
    table.set_resources([a_resource(generation=3)], now_s=0.0)
    for late in (a_resource(generation=2), a_resource(generation=3, capacity=1)):
        with pytest.raises(StaleVersion, match="generation 3 with capacity 2"):
            table.set_resources([late], now_s=0.0)


def test_a_deleted_resource_does_not_come_back_with_a_delayed_older_write() -> None:
    table = a_table()
    table.set_resources([a_resource(capacity=0, generation=2, lease_expires_at_s=1.0)], now_s=0.0)
    with pytest.raises(StaleVersion):
        table.set_resources([a_resource(generation=1)], now_s=0.0)
    assert table.resources(0.0) == ()


def test_a_shortened_lease_stays_fenced_until_the_longest_lease_ever_given_is_over() -> None:
    table = a_table()
    table.set_resources([a_resource(lease_expires_at_s=60.0)], now_s=0.0)
    table.set_resources([a_resource(lease_expires_at_s=5.0, generation=2)], now_s=0.0)
    table.expire(10.0)
    with pytest.raises(StaleVersion):
        table.set_resources([a_resource(lease_expires_at_s=60.0)], now_s=10.0)


def test_a_batch_is_written_whole_or_not_at_all() -> None:
    table = a_table()
    table.set_resources([a_resource(generation=2)], now_s=0.0)
    fresh = a_resource(name="gang-y-1")
    bad = {
        StaleVersion: a_resource(generation=1),
        NotFound: a_resource(node="n9"),
        InvalidResource: a_resource(capacity=-1),
    }
    for error, resource in bad.items():
        with pytest.raises(error):
            table.set_resources([fresh, resource], now_s=0.0)
        assert table.resources(0.0) == (a_resource(generation=2),)


def test_two_writers_that_compare_generations_lose_no_increment() -> None:
    table = a_table()
    seen = dict.fromkeys("ab", (0, 0))  # writer -> (generation, capacity) it read last
    done = retries = 0
    while done < 200:
        for writer in seen:
            generation, capacity = seen[writer]
            try:
                table.set_resource("q", capacity + 1, "n0", 60, "app", 0.0, expect_generation=generation)
                done += 1
            except StaleVersion:
                retries += 1
            (current,) = table.resources(0.0)
            if writer == "a" or done % 3:  # b reads late now and then
                seen[writer] = (current.generation, current.capacity)
    assert state(table, "n0", "app/q") == Availability(done, done)
    assert retries > 0


def test_after_a_delete_the_writer_may_expect_that_there_is_no_such_name() -> None:
    table = a_table()
    table.set_resource("q", 1, "n0", 60, "app", 0.0, expect_generation=0)
    table.set_resource("q", 0, "n0", 60, "app", 0.0, expect_generation=1)
    (again,) = table.set_resource("q", 1, "n0", 60, "app", 0.0, expect_generation=0)
    assert again.generation == 3


@pytest.mark.parametrize("label", ["", "A", "a_b", "-a", "a-", "a/b", "a" * 64, "ä", "a b", "a\n"])
def test_names_and_owners_that_some_backend_would_refuse_are_refused_here(label: str) -> None:
    table = a_table()
    with pytest.raises(InvalidResource, match=r"^name: "):
        table.set_resource(label, 1, "n0", 60, "app", 0.0)
    with pytest.raises(InvalidResource, match=r"^owner: "):
        table.set_resource("q", 1, "n0", 60, label, 0.0)
    with pytest.raises(InvalidResource):
        Member({f"app/{label}": 1})
    with pytest.raises(InvalidResource):
        table.add_node("n7", {label: 1})


@pytest.mark.parametrize("capacity", [-1, 10**9 + 1, 1.5, True, None])
def test_a_capacity_is_a_whole_number_from_zero_to_a_thousand_million(capacity: object) -> None:
    table = a_table()
    with pytest.raises(InvalidResource, match=r"^capacity: "):
        table.set_resource("q", capacity, "n0", 60, "app", 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("inf"), float("nan")])
def test_no_resource_lives_for_ever_or_is_born_expired(ttl_s: float) -> None:
    table = a_table()
    with pytest.raises(InvalidResource, match=r"^ttl_s: "):
        table.set_resource("q", 1, "n0", ttl_s, "app", 0.0)
    with pytest.raises(InvalidResource, match=r"^lease_expires_at_s: "):
        table.set_resources([a_resource(lease_expires_at_s=float("inf"))], now_s=0.0)


def test_physical_resources_cannot_be_written() -> None:
    with pytest.raises(InvalidResource, match=r"^owner: "):
        a_table().set_resource("cpu", 9999, "n0", 60, "node", 0.0)


def test_a_requirement_names_owner_and_resource_and_asks_at_least_one() -> None:
    for bad in ({}, {"cpu": 1}, {"node/cpu": 0}):
        with pytest.raises(InvalidResource):
            Member(bad)


def test_an_unknown_node_is_named_with_those_there_are() -> None:
    with pytest.raises(NotFound, match="no node 'n7'; nodes: n0, n1"):
        a_table().set_resource("q", 1, "n7", 60, "app", 0.0)


def test_of_thousands_of_nodes_an_error_names_a_few() -> None:
    with pytest.raises(NotFound, match=r"nodes: n0, n1, n10, .* and 2980 more$"):
        a_table(nodes=3_000, workers=1).set_resource("x", 1, "elsewhere", 60.0, "app", 0.0)


def test_a_node_takes_its_resources_and_what_was_held_there_with_it() -> None:
    table = a_table()
    table.set_resource("gang-x-1", 1, ["n0", "n1"], 60, "gavel", 0.0)
    members = (Member({"gavel/gang-x-1": 1}, node="n0"), Member({"gavel/gang-x-1": 1}, node="n1"))
    match(table, [GangRequest(("x", 1), members)], 0.0)
    table.remove_node("n0")
    assert list(table.get_cluster_state(0.0)) == ["n1"]
    assert state(table, "n1", "gavel/gang-x-1") == Availability(1, 0)  # held there until the gang is released

    table.add_node("n0", {"cpu": 2})
    assert state(table, "n0", "gavel/gang-x-1") is None
    table.set_resources([a_resource(capacity=1)], now_s=1.0)
    assert state(table, "n0", "gavel/gang-x-1") == Availability(1, 1)
    table.release(("x", 1))
    assert state(table, "n1", "gavel/gang-x-1") == Availability(1, 1)


def test_a_node_said_again_has_the_new_physical_resources_and_keeps_the_others() -> None:
    table = a_table(nodes=1)
    table.set_resource("q", 1, "n0", 60, "app", 0.0)
    table.add_node("n0", {"cpu": 9})
    assert table.get_cluster_state(0.0) == {"n0": {"app/q": Availability(1, 1), "node/cpu": Availability(9, 9)}}


def test_a_gang_acquires_once_and_only_what_is_free() -> None:
    table = a_table()
    table.acquire(("x", 1), [("n0", {"node/cpu": 1})], 0.0)
    with pytest.raises(Conflict, match="already"):
        table.acquire(("x", 1), [("n0", {"node/cpu": 1})], 0.0)
    with pytest.raises(Conflict, match=r"n0 has 1 of node/cpu free, gang .* needs 2"):
        table.acquire(("y", 1), [("n0", {"node/cpu": 1}), ("n0", {"node/cpu": 1})], 0.0)
    assert not table.holds(("y", 1))
