"""The files by which service and agents speak."""

import os
import pickle
from pathlib import Path

from gavel.backends.nodes.letters import Letter, PostBox, Reply, read_epoch, write_epoch
from gavel.backends.nodes.protocol import Answer, Order, ShardLaunch, ShardWanted, Slot
from gavel.backends.slurm.node import devices_of
from gavel.ports import LaunchGang


def launched(*indices: int, resource: str = "gpu:a100") -> ShardWanted:
    instruction = LaunchGang(
        job_id="j1",
        generation=1,
        user="ann",
        argv=("true",),
        env={"A": "b"},
        accelerator_type="a100",
        worker_ids=tuple(f"a100-{index}" for index in indices),
        resource="gavel/gang-j1-1",
        lease_expires_at_s=10.0,
        start_step=0,
        total_steps=None,
        checkpoint=None,
    )
    slots = tuple(Slot(accelerator_type="a100", resource=resource, index=index) for index in indices)
    launch = ShardLaunch(
        instruction=instruction,
        ranks=tuple(range(len(indices))),
        slots=slots,
        node_of_rank=("n0",) * len(indices),
        environment={},
        lease_grace_s=1.0,
        log_bytes=1,
        checkpoints="/shared",
    )
    return ShardWanted(key=("j1", 1), lease_node_boottime_s=10.0, launch=launch, secrets={"TOKEN": "x"})


def test_letters_and_replies_arrive_as_they_were_written(tmp_path: Path) -> None:
    box, other = PostBox(tmp_path / "n0"), PostBox(tmp_path / "n0")
    letter = Letter(number=1, order=Order(epoch=3, shards=(launched(0, 1),)))
    box.make(letter)
    assert other.letter() == letter
    assert box.reply() is None
    reply = Reply(number=1, beat=1, answer=Answer(boot_id="b", node_boottime_s=5.0, ports=(1, 2)))
    other.answer(reply)
    assert box.reply() == reply
    box.send(Letter(number=2, order=Order(epoch=3), leaves=True))
    assert other.letter() == Letter(number=2, order=Order(epoch=3), leaves=True)


def test_only_the_user_may_read_a_letter(tmp_path: Path) -> None:
    box = PostBox(tmp_path / "n0")
    box.make(Letter(number=1, order=Order(epoch=3)))
    assert {path.stat().st_mode & 0o777 for path in box.folder.iterdir()} == {0o600}


def test_a_file_that_none_of_us_has_written_is_no_letter(tmp_path: Path) -> None:
    """1 what would run a program when it is read runs none, 2 a text, 3 half a letter."""
    box = PostBox(tmp_path / "n0")
    box.make(Letter(number=1, order=Order(epoch=3)))
    whole = (box.folder / "order").read_bytes()
    for content in (pickle.dumps(Runs(tmp_path / "ran")), b"hello", whole[:-9], pickle.dumps({"a": os.getcwd})):
        (box.folder / "reply").write_bytes(content)
        assert box.reply() is None
    assert not (tmp_path / "ran").exists()


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self._path),)


def test_an_epoch_is_never_taken_back(tmp_path: Path) -> None:
    assert read_epoch(tmp_path) == 0
    write_epoch(tmp_path, 7)
    write_epoch(tmp_path, 5)
    assert read_epoch(tmp_path) == 7


def devices(wanted: ShardWanted) -> list[str]:
    assert wanted.launch is not None
    return [slot.device for slot in wanted.launch.slots]


def test_each_rank_gets_a_device_of_its_own_of_those_that_slurm_gave() -> None:
    """1 in the order in which they start, 2 a partner on the same workers gets the same, 3 what is counted has none."""
    given = devices_of({"CUDA_VISIBLE_DEVICES": "2,MIG-7"})
    (first,), (second,) = given.placed((launched(0, 3),)), given.placed((launched(3, 0),))
    assert (devices(first), devices(second)) == (["2", "MIG-7"], ["MIG-7", "2"])
    assert devices_of({}).placed((launched(0, resource="acc:a"),)) == (launched(0, resource="acc:a"),)
