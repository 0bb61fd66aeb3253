"""Until when parts of gangs on lost nodes may run, what is stored of them, and what a node that is back changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.nodes.lost import LostParts
from tests.backends.boottimes import Boottime


def stored(folder: Path, job_id: str = "j1") -> Any:
    return json.loads((folder / job_id / "lost.json").read_text())


def test_a_part_may_run_to_the_last_instant_of_its_lease(tmp_path: Path, boottime: Boottime) -> None:
    lost = LostParts(tmp_path, 0.0)
    lost.add(("j1", 1), "n1", 160.0, 1000.0)
    boottime.now_s = 159.9
    assert lost.may_run(("j1", 2)) == "n1"
    boottime.now_s = 160.0
    assert lost.may_run(("j1", 2)) == ""


def test_only_an_older_gang_of_the_same_job_is_waited_for(tmp_path: Path, boottime: Boottime) -> None:
    lost = LostParts(tmp_path, 0.0)
    lost.add(("j1", 3), "n1", 160.0, 1000.0)
    assert [lost.may_run(("j1", generation)) for generation in (2, 3, 4)] == ["", "", "n1"]
    assert lost.may_run(("j2", 4)) == ""


def test_the_parts_of_a_job_are_stored_with_instants_of_the_wall_clock(tmp_path: Path, boottime: Boottime) -> None:
    """Those of a job are in its own folder, which only this user may enter; what is over by then is left out."""
    folder = tmp_path / "state" / "gangs"
    lost = LostParts(folder, 0.0)
    lost.add(("j1", 1), "n1", 160.0, 1000.0)
    lost.add(("j1", 1), "n2", 130.0, 1000.0)
    lost.add(("j2", 1), "n2", 190.0, 1000.0)
    assert stored(folder) == {"parts": [[1, "n1", 1060.0], [1, "n2", 1030.0]]}
    assert stored(folder, "j2") == {"parts": [[1, "n2", 1090.0]]}
    assert (folder / "j1").stat().st_mode & 0o777 == 0o700
    boottime.now_s = 130.0
    lost.add(("j1", 2), "n3", 200.0, 1030.0)
    assert stored(folder) == {"parts": [[1, "n1", 1060.0], [2, "n3", 1100.0]]}


def test_a_service_that_starts_again_counts_by_its_own_boottime(tmp_path: Path, boottime: Boottime) -> None:
    LostParts(tmp_path, 0.0).add(("j1", 1), "n1", 160.0, 1000.0)
    boottime.now_s = 7.0
    again = LostParts(tmp_path, 1020.0)
    boottime.now_s = 46.9
    assert again.may_run(("j1", 2)) == "n1"
    boottime.now_s = 47.0
    assert again.may_run(("j1", 2)) == ""


def test_a_node_that_is_back_clears_those_of_its_parts_that_have_ended(tmp_path: Path, boottime: Boottime) -> None:
    lost = LostParts(tmp_path, 0.0)
    for key, node in [(("j1", 1), "n1"), (("j1", 2), "n1"), (("j1", 1), "n2"), (("j2", 1), "n1"), (("j3", 1), "n1")]:
        lost.add(key, node, 160.0, 1000.0)
    boottime.now_s = 110.0
    lost.heard("n1", [("j1", 2), ("j3", 1), ("j2", 9)], 1010.0)
    assert [lost.may_run((job_id, 9)) for job_id in ("j1", "j2", "j3")] == ["n1", "", "n1"]
    assert lost.may_run(("j1", 2)) == "n2"
    assert stored(tmp_path) == {"parts": [[2, "n1", 1060.0], [1, "n2", 1060.0]]}
    assert (stored(tmp_path, "j2"), stored(tmp_path, "j3")) == ({"parts": []}, {"parts": [[1, "n1", 1060.0]]})
    assert LostParts(tmp_path, 1010.0).may_run(("j1", 2)) == "n2"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"parts": 1}',
        '{"parts": [[1, "n1"]]}',
        '{"parts": [["x", "n1", 5]]}',
        '{"parts": [[1, "n1", NaN]]}',
    ],
)
def test_a_file_that_no_service_wrote_holds_nobody_up(tmp_path: Path, boottime: Boottime, content: str) -> None:
    LostParts(tmp_path, 0.0).add(("j2", 1), "n1", 160.0, 1000.0)
    (tmp_path / "j1").mkdir()
    (tmp_path / "j1" / "lost.json").write_text(content)
    lost = LostParts(tmp_path, 1000.0)
    assert (lost.may_run(("j1", 2)), lost.may_run(("j2", 2))) == ("", "n1")
