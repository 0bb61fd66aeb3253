"""An allocation's files, and what Slurm says of its jobs: no cluster is needed."""

from pathlib import Path

from gavel.backends.nodes.letters import Reply
from gavel.backends.nodes.protocol import Answer, Group, Order
from gavel.backends.slurm.allocation import SlurmAllocation, floating
from gavel.backends.slurm.commands import SlurmJob

GROUP = Group(name="gavel/j1/2", bundles=(("n0", "acc:a", 2), ("n1", "acc:a", 1), ("n2", "acc:a", 2)))


def made(folder: Path) -> SlurmAllocation:
    allocation = SlurmAllocation.make(folder, GROUP, epoch=5)
    for job_id in (7, 8):
        allocation.jobs[job_id] = job(allocation, job_id, "PENDING")
    return allocation


def job(allocation: SlurmAllocation, job_id: int, state: str, **over: object) -> SlurmJob:
    fields = {"job_id": job_id, "state": state, "name": allocation.name, "comment": str(allocation.folder)}
    return SlurmJob(**{**fields, **over})  # type: ignore[arg-type]


def agents_speak(allocation: SlurmAllocation) -> None:
    for seat in allocation.seats.values():
        seat.box.answer(Reply(number=1, beat=1, answer=Answer(boot_id="b", node_boottime_s=1.0)))


def test_nodes_with_the_same_number_of_workers_are_one_job_of_slurm(tmp_path: Path) -> None:
    assert made(tmp_path).by_units() == {("acc:a", 2): ["n0", "n2"], ("acc:a", 1): ["n1"]}


def test_it_is_ready_when_every_agent_has_spoken(tmp_path: Path) -> None:
    allocation = made(tmp_path)
    assert not allocation.is_ready
    agents_speak(allocation)
    assert allocation.is_ready


def test_the_next_service_finds_it_with_its_last_letters(tmp_path: Path) -> None:
    """1 its name and nodes, 2 letters are numbered on, 3 files that nobody has written whole are none."""
    allocation = made(tmp_path)
    agents_speak(allocation)
    allocation.seats["n0"].write(Order(epoch=6))
    again = SlurmAllocation.read(allocation.folder)
    assert again is not None
    assert (again.name, again.bundles, again.is_ready) == (allocation.name, allocation.bundles, True)
    assert {node: seat.letter.number for node, seat in again.seats.items()} == {"n0": 6, "n1": 1, "n2": 1}
    (allocation.folder / "allocation.json").write_text('{"name": "x"}')
    assert SlurmAllocation.read(allocation.folder) is None
    assert SlurmAllocation.read(tmp_path / "absent") is None


def test_an_order_that_is_the_same_is_not_written_again(tmp_path: Path) -> None:
    seat = made(tmp_path).seats["n0"]
    numbers = []
    for keep_code_s in (1.0, 1.0, 2.0):
        seat.write(Order(epoch=6, keep_code_s=keep_code_s))
        numbers.append(seat.letter.number)
    assert numbers == [6, 6, 7]


def test_a_reply_to_an_older_letter_is_no_answer(tmp_path: Path) -> None:
    allocation = made(tmp_path)
    agents_speak(allocation)
    seat = allocation.seats["n0"]
    seat.look()
    assert seat.has_answered
    seat.write(Order(epoch=6))
    assert not seat.has_answered


def test_it_is_gone_with_the_first_of_its_jobs_and_over_with_the_last(tmp_path: Path) -> None:
    allocation = made(tmp_path)
    running = {each: job(allocation, each, "RUNNING", left_s=60.0 * each) for each in (7, 8)}
    allocation.take(running, now_boottime_s=100.0)
    assert (allocation.gone, allocation.is_held, allocation.end_boottime_s) == ("", True, 520.0)
    allocation.take({**running, 8: job(allocation, 8, "CANCELLED", reason="None")}, now_boottime_s=101.0)
    assert allocation.gone == "Slurm ended its allocation 8: CANCELLED"
    allocation.leave()
    assert not allocation.is_over
    allocation.take({8: job(allocation, 8, "CANCELLED")}, now_boottime_s=102.0)  # 7 is not listed any more
    assert allocation.is_over


def test_boxes_are_numbered_by_job_and_node_where_slurm_chooses_the_nodes() -> None:
    assert [name for name, _, _ in floating(GROUP).bundles] == ["job-0-node-0", "job-1-node-0", "job-0-node-1"]


def test_it_is_where_its_agents_say_once_all_have_spoken(tmp_path: Path) -> None:
    """1 its boxes have numbers, 2 some agents have spoken, 3 all have: seats and bundles are those of their nodes."""
    allocation = SlurmAllocation.make(tmp_path, floating(GROUP), epoch=5)
    nodes = {"job-0-node-0": "n7", "job-1-node-0": "n5", "job-0-node-1": "n9"}
    for box, seat in [*allocation.seats.items()]:
        assert not allocation.is_ready and not allocation.is_elsewhere and set(allocation.seats) == set(nodes)
        answer = Answer(boot_id="b", node_boottime_s=1.0)
        seat.box.answer(Reply(number=1, beat=1, answer=answer, node=nodes[box]))
    where = (("n7", "acc:a", 2), ("n5", "acc:a", 1), ("n9", "acc:a", 2))
    again = SlurmAllocation.read(allocation.folder)
    assert again is not None
    for each in (allocation, again):
        assert each.is_ready and each.is_elsewhere
        assert (each.bundles, set(each.seats)) == (where, {"n7", "n5", "n9"})
        assert each.by_units() == {("acc:a", 2): ["n7", "n9"], ("acc:a", 1): ["n5"]}


def test_what_it_holds_is_on_the_nodes_that_slurm_names(tmp_path: Path) -> None:
    allocation = SlurmAllocation.make(tmp_path, floating(GROUP), epoch=5)
    first = job(allocation, 7, "RUNNING", nodes=("n9", "n7"))
    allocation.take({8: job(allocation, 8, "PENDING"), 7: first}, now_boottime_s=1.0)
    assert allocation.held == [("n9", "acc:a", 2), ("n7", "acc:a", 2)]
    allocation.take({8: job(allocation, 8, "RUNNING", nodes=("n5",)), 7: first}, now_boottime_s=1.0)
    assert allocation.held == [("n9", "acc:a", 2), ("n7", "acc:a", 2), ("n5", "acc:a", 1)]


def test_the_nodes_to_blame_are_those_that_slurm_gave_or_else_the_planned_ones(tmp_path: Path) -> None:
    allocation = SlurmAllocation.make(tmp_path, floating(GROUP), epoch=5)
    allocation.wished = ("n0", "n1", "n2")
    jobs = {7: job(allocation, 7, "RUNNING", nodes=("n9", "n7")), 8: job(allocation, 8, "PENDING")}
    allocation.take(jobs, now_boottime_s=1.0)
    assert list(allocation.places) == ["n0", "n1", "n2"]
    allocation.take({**jobs, 8: job(allocation, 8, "RUNNING", nodes=("n5",))}, now_boottime_s=1.0)
    assert sorted(allocation.places) == ["n5", "n7", "n9"]


def test_a_reply_of_an_earlier_version_does_not_say_where_it_is_from(tmp_path: Path) -> None:
    """It was written before replies had `node`: its agent runs on, where it was planned."""
    seat = made(tmp_path).seats["n0"]
    seat.reply = object.__new__(Reply)
    seat.reply.__setstate__([1, 1, Answer(boot_id="b", node_boottime_s=1.0), ""])  # type: ignore[attr-defined]
    assert (seat.node, seat.has_answered) == ("", True)
