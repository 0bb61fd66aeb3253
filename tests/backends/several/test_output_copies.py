"""Output files of a job that goes on in another region: its program finds them there."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends.several import output_copies, output_places
from gavel.backends.several.copies import Copies, Held
from gavel.backends.several.output_copies import OutputCopies
from tests.backends.several.test_copies import launch, places, read, settled, written

OLD_S, NEW_S = 1_000_000.0, 1_000_100.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_copies, "PAUSE_S", 0.0)


def write(root: Path, files: dict[str, bytes], at_s: float, job: str = "j0") -> None:
    for path, content in files.items():
        place = root / job / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        os.utime(place, (at_s, at_s))


@pytest.mark.parametrize("eu_is_url", [False, True])
@pytest.mark.parametrize("us_is_url", [False, True])
def test_files_of_another_region_are_there_before_the_gang_and_newer_ones_stay(
    tmp_path: Path, eu_is_url: bool, us_is_url: bool
) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    write(eu, {"log.csv": b"1\n2\n", "plots/loss.png": b"p" * 2_000_000, "empty": b""}, NEW_S)
    write(us, {"log.csv": b"1\n", "own": b"us"}, OLD_S)
    write(eu, {"own": b"eu"}, OLD_S - 50)
    write(eu, {"other": b"of another job"}, NEW_S, job="j1")
    OutputCopies(places(eu, us, eu_is_url=eu_is_url, us_is_url=us_is_url)).bring("j0", "us")
    expected = {"log.csv": b"1\n2\n", "plots/loss.png": b"p" * 2_000_000, "empty": b"", "own": b"us"}
    assert read(us / "j0") == expected
    assert not (us / "j1").exists()


def test_back_at_home_only_what_has_changed_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    write(eu, {"a": b"1", "b": b"1"}, OLD_S)
    copies = OutputCopies(places(eu, us, eu_is_url=False, us_is_url=False))
    copies.bring("j0", "us")
    write(us, {"b": b"12"}, NEW_S)
    put: list[str] = []
    real = output_places.OutputsInFolder.put
    monkeypatch.setattr(
        output_places.OutputsInFolder,
        "put",
        lambda self, job, file, source: (put.append(file.path), real(self, job, file, source)),
    )
    copies.bring("j0", "eu")
    assert (put, read(eu / "j0")) == (["b"], {"a": b"1", "b": b"12"})


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    eu, us, outside = tmp_path / "eu", tmp_path / "us", tmp_path / "outside"
    outside.mkdir()
    write(eu, {"folder/file": b"x", "file": b"x", "good": b"x"}, NEW_S)
    (us / "j0").mkdir(parents=True)
    (us / "j0" / "folder").symlink_to(outside)
    (us / "j0" / "file").symlink_to(outside / "file")
    OutputCopies(places(eu, us, eu_is_url=False, us_is_url=False)).bring("j0", "us")
    assert not list(outside.iterdir())
    assert (us / "j0" / "good").read_bytes() == b"x"
    assert (us / "j0" / "file").read_bytes() == b"x" and not (us / "j0" / "file").is_symlink()


def test_a_job_gets_no_more_than_it_may_keep_the_newest_first(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    write(eu, {"old": b"o" * 60}, OLD_S)
    write(eu, {"new": b"n" * 60}, NEW_S)
    OutputCopies(places(eu, us, eu_is_url=False, us_is_url=False), limit_bytes=100).bring("j0", "us")
    assert read(us / "j0") == {"new": b"n" * 60}


def test_a_copy_that_is_not_what_was_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_places, "digest_of", lambda file: "another one")
    eu, us = tmp_path / "eu", tmp_path / "us"
    write(eu, {"a": b"1"}, OLD_S)
    OutputCopies(places(eu, us, eu_is_url=False, us_is_url=False)).bring("j0", "us")
    assert not (us / "j0" / "a").exists()


def test_a_place_that_cannot_be_read_keeps_no_job_waiting(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    write(eu, {"a": b"1"}, OLD_S)
    apart = {"eu": str(eu), "us": str(us), "ap": "nothing-that-fsspec-knows://ap"}
    OutputCopies(apart).bring("j0", "us")
    assert read(us / "j0") == {"a": b"1"}
    OutputCopies(apart).bring("j0", "ap")


def test_a_gang_waits_for_its_checkpoint_and_its_output_files(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    written(eu, "1-5")
    write(eu / "_outputs", {"log.csv": b"1\n"}, OLD_S)
    outputs = OutputCopies({"eu": str(eu / "_outputs"), "us": str(us / "_outputs")})
    copies = Copies(places(eu, us, eu_is_url=False, us_is_url=False), outputs=outputs)
    settled(copies, launch())
    assert read(us / "_outputs" / "j0") == {"log.csv": b"1\n"}


def test_a_job_without_a_checkpoint_that_has_run_waits_for_its_output_files(tmp_path: Path) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    write(eu, {"log.csv": b"1\n"}, OLD_S)
    copies = Copies({"eu": "", "us": ""}, outputs=OutputCopies({"eu": str(eu), "us": str(us)}))
    assert copies.held(launch(None), "us") == Held(why="its output files are copied to region us")
    settled(copies, launch(None))
    assert read(us / "j0") == {"log.csv": b"1\n"}


def test_the_first_gang_of_a_job_waits_for_none(tmp_path: Path) -> None:
    copies = Copies({"eu": "", "us": ""}, outputs=OutputCopies({"eu": str(tmp_path / "eu"), "us": str(tmp_path)}))
    assert copies.held(launch(None, generation=1), "us") is None  # type: ignore[arg-type]


paths = st.sampled_from(["a", "b", "c/d", "c/e/f"])


@settings(deadline=None, max_examples=30)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["eu", "us", "ap"]), st.dictionaries(paths, st.binary(max_size=8), max_size=3)),
        max_size=6,
    )
)
def test_wherever_it_goes_a_job_finds_what_it_wrote_last(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, dict[str, bytes]]]
) -> None:
    root = tmp_path_factory.mktemp("regions")
    copies = OutputCopies({name: str(root / name) for name in ("eu", "us", "ap")})
    last: dict[str, bytes] = {}
    for index, (region, files) in enumerate(moves):
        copies.bring("j0", region)
        assert read(root / region / "j0") == last
        write(root / region, files, OLD_S + index)
        last |= files
