"""Checkpoints of a job that goes on in another region, where both have storages of their own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from gavel.backends.several.copies import Copies, Held
from gavel.backends.several.link_speeds import LinkSpeeds
from gavel.backends.several.storages import FolderStorage, storage_at
from gavel.ports import LaunchGang
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import eventually
from tests.backends.several.launches import gang
from tests.backends.several.links import Services

FILES = {"weights": b"w" * 3_000_000, "optimizer/state": b"s", "empty": b""}


def written(root: Path, name: str, job: str = "j0", files: dict[str, bytes] = FILES) -> Path:
    """A checkpoint below a folder."""
    for path, content in files.items():
        place = root / job / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return root / job / name


def read(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def launch(checkpoint: str | None = "1-5", **over: str) -> LaunchGang:
    (_, start) = gang(0, 2, "us", 60.0)
    assert isinstance(start, LaunchGang)
    return replace(start, checkpoint=checkpoint, **over)


def settled(
    copies: Copies, start: LaunchGang, until: Callable[[Held | None], bool] = lambda held: held is None
) -> Held | None:
    """What holds the gang once the condition is true."""
    last: list[Held | None] = []

    def look() -> bool:
        last[:] = [copies.held(start, "us")]
        return until(last[0])

    eventually(look)
    return last[0]


def places(eu: Path, us: Path, *, eu_is_url: bool, us_is_url: bool) -> dict[str, str]:
    for each in (eu, us):
        each.mkdir(exist_ok=True)
    return {"eu": eu.as_uri() if eu_is_url else str(eu), "us": us.as_uri() if us_is_url else str(us)}


@pytest.mark.parametrize("eu_is_url", [False, True])
@pytest.mark.parametrize("us_is_url", [False, True])
def test_a_checkpoint_is_copied_whole(tmp_path: Path, eu_is_url: bool, us_is_url: bool) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    written(eu, "1-5")
    copies = Copies(places(eu, us, eu_is_url=eu_is_url, us_is_url=us_is_url))
    first = copies.held(launch(), "us")
    assert first == Held(why="its checkpoint 1-5 is copied to region us")
    settled(copies, launch())
    assert read(us / "j0" / "1-5") == FILES
    assert not [each for each in (*us.glob(".j0*"), *us.glob(".coming/*/*"))]


class BrokenOff(FolderStorage):
    """A storage of which only one file can be read."""

    is_broken = False

    def open(self, job_id: str, name: str, path: str) -> BinaryIO:
        if self.is_broken:
            raise OSError("the connection was reset")
        self.is_broken = True
        return super().open(job_id, name, path)


@pytest.mark.parametrize("us_is_url", [False, True])
def test_a_copy_that_was_broken_off_is_made_again(tmp_path: Path, us_is_url: bool) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    written(eu, "1-5")
    at = places(eu, us, eu_is_url=False, us_is_url=us_is_url)
    target = storage_at(at["us"])
    with pytest.raises(OSError, match="reset"):
        target.put("j0", "1-5", BrokenOff(eu))
    assert not target.is_whole("j0", "1-5")
    settled(Copies(at), launch())
    assert target.is_whole("j0", "1-5") and read(us / "j0" / "1-5") == FILES


def test_a_storage_that_cannot_be_read_holds_up_no_job_of_other_regions(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    written(us, "1-4")
    written(eu, "1-5")
    copies = Copies({**places(eu, us, eu_is_url=False, us_is_url=False), "ap": str(tmp_path / "gone")})
    settled(copies, launch("1-4"))
    settled(copies, launch("1-5"))
    assert read(us / "j0" / "1-5") == FILES
    held = settled(copies, launch("1-6"), lambda held: held is not None and "failed" in held.why)
    assert held is not None and "gone" in held.why and held.left is None


def test_a_part_of_a_copy_is_no_origin(tmp_path: Path) -> None:
    """Where the whole checkpoint is cannot be read now: the gang waits for that."""
    eu, us, ap = (tmp_path / name for name in ("eu", "us", "ap"))
    written(eu, "1-5")
    at = {**places(ap, us, eu_is_url=True, us_is_url=False), "ap": ap.as_uri(), "eu": str(eu)}
    with pytest.raises(OSError, match="reset"):
        storage_at(at["ap"]).put("j0", "1-5", BrokenOff(eu))
    eu.rename(tmp_path / "away")
    settled(Copies(at), launch(), lambda held: held is not None and "the last try failed" in held.why)
    assert not (us / "j0").exists()
    (tmp_path / "away").rename(eu)
    settled(Copies(at), launch())
    assert read(us / "j0" / "1-5") == FILES


def test_with_one_storage_for_all_there_is_nothing_to_copy(tmp_path: Path) -> None:
    assert Copies({"eu": str(tmp_path), "us": str(tmp_path)}).held(launch(), "us") is None


def test_a_job_without_a_checkpoint_waits_for_none(tmp_path: Path) -> None:
    assert Copies({"eu": str(tmp_path / "eu"), "us": str(tmp_path)}).held(launch(None), "us") is None


def test_a_checkpoint_that_another_job_begins_with_is_copied_too(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    written(eu, "3-9", job=".copies/j7")
    start = launch(None, from_checkpoint="j7/3-9")
    settled(Copies(places(eu, us, eu_is_url=False, us_is_url=False)), start)
    assert read(us / ".copies" / "j7" / "3-9") == FILES


def has_left(held: Held | None) -> bool:
    return held is not None and held.left is not None


def test_where_it_is_gone_the_newest_older_one_is_named(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    written(eu, "1-3")
    written(us, "1-4")
    written(eu, "1-6")  # newer than the accepted one: nobody goes on from it
    held = settled(Copies(places(eu, us, eu_is_url=False, us_is_url=False)), launch(), has_left)
    assert held == Held(why="checkpoint 1-5 is gone, no region has it (eu and us); 1-4 is left", left="1-4")


def test_where_no_older_one_is_left_that_is_told(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    for place in (eu, us):
        written(place, "1-1", job="other")
    held = settled(Copies(places(eu, us, eu_is_url=False, us_is_url=False)), launch(), has_left)
    assert held == Held(why="checkpoint 1-5 is gone, no region has it (eu and us); no older one is left", left="")


def test_an_empty_place_may_be_one_that_is_not_mounted(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    copies = Copies(places(eu, us, eu_is_url=False, us_is_url=False))
    written(us, "1-1", job="other")
    settled(copies, launch(), lambda held: held is not None and "is its file system mounted?" in held.why)
    written(eu, "1-5")
    settled(copies, launch())
    assert read(us / "j0" / "1-5") == FILES


def test_a_storage_that_cannot_be_read_has_lost_nothing(tmp_path: Path) -> None:
    """It is tried again until it can be."""
    eu, us = tmp_path / "eu", tmp_path / "us"
    us.mkdir()
    copies = Copies({"eu": str(eu), "us": str(us)})
    settled(copies, launch(), lambda held: held is not None and "the last try failed" in held.why)
    written(eu, "1-5")
    settled(copies, launch())
    assert read(us / "j0" / "1-5") == FILES


def test_a_gang_waits_for_its_checkpoint_and_starts_with_it(services: Services, tmp_path: Path) -> None:
    services.checkpoints = places(tmp_path / "eu", tmp_path / "us", eu_is_url=False, us_is_url=False)
    written(tmp_path / "eu", "1-5")
    services.restart()
    services.seen()
    resource, _ = gang(0, 2, "us", services.clock.now_s() + 60.0)
    start = launch(lease_expires_at_s=services.clock.now_s() + 60.0)  # type: ignore[arg-type]
    services.backend.execute([resource, start])
    states = []

    def runs() -> bool:
        (seen,) = services.seen().gangs
        states.append((seen.state, seen.waiting_for))
        return seen.state is GangState.RUNNING

    eventually(runs)
    assert states[0] == (GangState.WAITING, "its checkpoint 1-5 is copied to region us")
    assert read(tmp_path / "us" / "j0" / "1-5") == FILES


@pytest.mark.parametrize(
    ("start", "outcome", "left"),
    [
        (launch(), GangOutcome.LOST, "1-4"),
        (launch(None, from_checkpoint="j7/3-9"), GangOutcome.NOT_STARTED, None),
    ],
)
def test_a_gang_whose_checkpoint_is_gone_ends_and_says_what_is_left(
    services: Services, tmp_path: Path, start: LaunchGang, outcome: GangOutcome, left: str | None
) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    for place in (eu, us):
        written(place, "1-4")
    services.checkpoints = places(eu, us, eu_is_url=False, us_is_url=False)
    services.restart()
    services.seen()
    services.backend.execute([replace(start, lease_expires_at_s=services.clock.now_s() + 60.0)])

    def has_ended() -> bool:
        (seen,) = services.seen().gangs
        return seen.state is GangState.ENDED

    eventually(has_ended)
    (ended,) = services.seen().gangs
    assert ended.exit is not None and "is gone, no region has it (eu and us)" in ended.exit.message
    assert (ended.exit.outcome, ended.checkpoint_left) == (outcome, left)


def test_a_copy_is_measured_and_a_restart_knows_it(tmp_path: Path) -> None:
    """A small one says nothing of the link; a damaged file is no reason not to start."""
    eu, us, file = tmp_path / "eu", tmp_path / "us", tmp_path / "state" / "copies.json"
    written(eu, "1-5")
    written(eu, "1-6", files={"weights": b"w" * 12_000_000})
    copies = Copies(places(eu, us, eu_is_url=False, us_is_url=False), LinkSpeeds(file))
    settled(copies, launch())
    assert copies.speeds.sums() == ()
    settled(copies, launch("1-6"))
    (link,) = copies.speeds.sums()
    assert (link.origin, link.target, link.copies, link.gigabytes) == ("eu", "us", 1, 0.012)
    assert link.seconds > 0
    assert LinkSpeeds(file).sums() == (link,)
    file.write_bytes(b"[[1]]")
    assert LinkSpeeds(file).sums() == ()


def test_only_the_last_copies_of_a_link_count() -> None:
    speeds = LinkSpeeds()
    for seconds in range(1, 100):
        speeds.add(["eu"], "us", 10**9, float(seconds))
    (link,) = speeds.sums()
    assert (link.copies, link.gigabytes, link.seconds) == (16, 16.0, float(sum(range(84, 100))))
