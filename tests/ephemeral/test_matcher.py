from gavel.ephemeral import Availability, GangRequest, Match, Member, ResourceTable, match


def a_table(**cpus: int) -> ResourceTable:
    table = ResourceTable()
    for node, cpu in cpus.items():
        table.add_node(node, {"cpu": cpu})
    return table


def a_request(job: str, members: int, **requires: int) -> GangRequest:
    return GangRequest((job, 1), (Member({f"node/{name}": amount for name, amount in requires.items()}),) * members)


def test_a_gang_that_cannot_fit_holds_nothing_and_lets_a_smaller_one_pass() -> None:
    table = a_table(a=2, b=1)
    matches = match(table, [a_request("big", 4, cpu=1), a_request("small", 3, cpu=1)], 0.0)
    assert matches == (Match(("small", 1), ("a", "a", "b")),)
    assert not table.holds(("big", 1))


def test_two_gangs_that_race_for_the_last_units_both_finish() -> None:
    table = a_table(a=2, b=2)
    racing = [a_request("x", 3, cpu=1), a_request("y", 3, cpu=1)]
    assert [each.gang for each in match(table, racing, 0.0)] == [("x", 1)]
    table.release(("x", 1))
    assert [each.gang for each in match(table, racing[1:], 0.0)] == [("y", 1)]


def test_a_gang_that_holds_already_is_passed_over() -> None:
    table, request = a_table(a=4), a_request("x", 1, cpu=1)
    assert len(match(table, [request, request], 0.0)) == 1
    assert match(table, [request], 0.0) == ()
    assert table.get_cluster_state(0.0)["a"]["node/cpu"] == Availability(4, 3)


def test_a_member_that_names_its_node_goes_there() -> None:
    table = a_table(a=4, b=4)
    request = GangRequest(("x", 1), (Member({"node/cpu": 1}), Member({"node/cpu": 1}, node="b")))
    assert match(table, [request], 0.0) == (Match(("x", 1), ("a", "b")),)


def test_members_with_few_places_to_go_are_placed_first() -> None:
    table = a_table(a=1, b=1)
    table.set_resource("license", 1, "a", 60, "app", 0.0)
    request = GangRequest(("x", 1), (Member({"node/cpu": 1}), Member({"node/cpu": 1, "app/license": 1})))
    assert match(table, [request], 0.0) == (Match(("x", 1), ("b", "a")),)


def test_each_rank_of_a_gang_goes_to_the_node_of_its_worker_and_starts_only_with_the_gangs_name() -> None:
    """1 the workers are free, 2 nothing runs, 3 the name appears, 4 all 64 ranks go."""
    table = ResourceTable()
    for node in range(100):
        table.add_node(f"n{node}", {f"worker-{node}-{index}": 1 for index in range(8)})
    members = tuple(Member({"gavel/gang-x-1": 1, f"node/worker-{90 + i // 8}-{i % 8}": 1}) for i in range(64))
    request = GangRequest(("x", 1), members)
    assert match(table, [request], 0.0) == ()
    table.set_resource("gang-x-1", 8, [f"n{node}" for node in range(90, 98)], 60, "gavel", 0.0)
    assert match(table, [request], 0.0) == (Match(("x", 1), tuple(f"n{90 + i // 8}" for i in range(64))),)


def test_capacity_is_never_exceeded_by_a_hundred_racing_tasks() -> None:
    table = a_table(a=3, b=4)
    admitted = match(table, [a_request(f"j{index}", 1, cpu=1) for index in range(100)], 0.0)
    assert sorted(each.nodes[0] for each in admitted) == ["a"] * 3 + ["b"] * 4


def test_members_that_need_more_of_the_same_do_not_hide_nodes_from_those_that_need_less() -> None:
    table = a_table(a=1, b=2)
    request = GangRequest(("x", 1), (Member({"node/cpu": 1}), Member({"node/cpu": 2})))
    assert match(table, [request], 0.0) == (Match(("x", 1), ("a", "b")),)
