"""An allocation's files, and what Slurm says of its jobs: no cluster is needed."""

from pathlib import Path

from gavel.backends.nodes.letters import Reply
from gavel.backends.nodes.protocol import Answer, Group, Order
from gavel.backends.slurm.allocation import SlurmAllocation
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
