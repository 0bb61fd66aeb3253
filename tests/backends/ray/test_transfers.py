"""Checkpoints at a URL, copied by a node's agent: a real folder behind fsspec, reached as any other storage is."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.checkpoint_retention import is_older
from gavel.backends.nodes import transfers
from gavel.backends.nodes.agent import NodeAgent
from gavel.backends.nodes.protocol import PROTOCOL, ShardSeen
from gavel.backends.nodes.transfers import RemoteCheckpoints, Transfers, is_url
from gavel.backends.ray.protocol import RaySettings
from gavel.types import GangOutcome, GangState, ReportKind
from tests.backends.clusters import eventually
from tests.backends.ray.test_agent import a_launch, is_ended, tell, until, wanted

pytest.importorskip("fsspec", reason="fsspec is not installed (extra [ray])")

WRITES = """
import json, os, pathlib, time
folder = pathlib.Path(os.environ["GAVEL_CHECKPOINT_DIR"]) / "1-7"
folder.mkdir(parents=True)
(folder / "weights").write_text("seven")
lines = [{"sequence": 1, "kind": "checkpoint", "step": 7, "checkpoint": "1-7"},
         {"sequence": 2, "kind": "progress", "step": 9}]
with open(os.environ["GAVEL_GANG_DIR"] + "/reports.jsonl", "a") as file:
    file.writelines(json.dumps(line) + "\\n" for line in lines)
"""
READS = "import os, pathlib; print(pathlib.Path(os.environ['GAVEL_CHECKPOINT'], 'weights').read_text())"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[NodeAgent]:
    made = NodeAgent("n1", str(tmp_path), PROTOCOL)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PAUSE_S", 0.0)


def launch_of_program(folder: Path, url: str, program: str, **over: object) -> object:
    launch = a_launch(folder, checkpoints=url)
    given = {"argv": (sys.executable, "-c", program), **over}
    return replace(launch, instruction=replace(launch.instruction, **given))  # type: ignore[arg-type]


def test_a_link_in_a_checkpoint_takes_nothing_of_others_along(tmp_path: Path) -> None:
    """Whoever stores it may read what the job may not: 1 a link to a file, 2 to a folder, 3 whole without them."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service/operator.token").write_text("secret")
    checkpoint, remote = tmp_path / "j1/1-7", RemoteCheckpoints((tmp_path / "storage").as_uri())
    (checkpoint / "layers").mkdir(parents=True)
    (checkpoint / "layers/0").write_text("zero")
    for name, target in (("weights", "service/operator.token"), ("more", "service")):
        (checkpoint / name).symlink_to(tmp_path / target)
        with pytest.raises(PermissionError, match=f"{name} of checkpoint 1-7 is no file; links are not stored"):
            remote.put("j1", checkpoint)
        assert not [
            path for path in (tmp_path / "storage").rglob("*") if path.is_file() and "secret" in path.read_text()
        ]
        (checkpoint / name).unlink()
    remote.put("j1", checkpoint)
    assert remote.files("j1", "1-7") == {"layers/0": 4}


def test_a_checkpoint_is_reported_once_it_is_stored(agent: NodeAgent, tmp_path: Path) -> None:
    """And the reports after it come after it."""
    url = (tmp_path / "storage").as_uri()
    ask = wanted(launch_of_program(tmp_path, url, WRITES))  # type: ignore[arg-type]
    stored = tmp_path / "storage/j1/1-7/weights"

    def is_whole(shard: ShardSeen) -> bool:
        named = [report.checkpoint for report in shard.reports if report.checkpoint]
        assert not named or stored.read_text() == "seven"
        return len(shard.reports) == 2

    end = until(agent, ask, is_whole)
    assert [(report.kind, report.checkpoint) for report in end.reports] == [
        (ReportKind.CHECKPOINT, "1-7"),
        (ReportKind.PROGRESS, None),
    ]


def test_a_gang_starts_once_its_checkpoint_is_on_its_node(agent: NodeAgent, tmp_path: Path) -> None:
    source = tmp_path / "made/4-20"
    source.mkdir(parents=True)
    (source / "weights").write_text("twenty")
    url = (tmp_path / "storage").as_uri()
    RemoteCheckpoints(url).put("j1", source)
    launch = launch_of_program(tmp_path, url, READS, checkpoint="4-20", start_step=20)
    end = until(agent, wanted(launch), is_ended)  # type: ignore[arg-type]
    assert end.log == b"twenty\n"


FALLS_BACK = """
import os, pathlib, time
previous = pathlib.Path(os.environ["GAVEL_PREVIOUS_CHECKPOINT"])
print(previous.name, previous.exists(), flush=True)
gang = pathlib.Path(os.environ["GAVEL_GANG_DIR"])
(gang / "previous.wanted").touch()
while not previous.is_dir() and not (gang / "previous.failed").exists():
    time.sleep(0.01)
print((previous / "weights").read_text() if previous.is_dir() else "failed")
"""


@pytest.mark.parametrize("is_stored", [True, False])
def test_the_checkpoint_before_is_fetched_when_the_job_asks(agent: NodeAgent, tmp_path: Path, is_stored: bool) -> None:
    """And if it cannot be fetched, the job hears of it."""
    url = (tmp_path / "storage").as_uri()
    for name in ("3-10", "4-20"):
        (tmp_path / "made" / name).mkdir(parents=True)
        (tmp_path / "made" / name / "weights").write_text(f"of {name}")
        RemoteCheckpoints(url).put("j1", tmp_path / "made" / name)
    launch = launch_of_program(tmp_path, url, FALLS_BACK, checkpoint="4-20", start_step=20)
    if not is_stored:
        (tmp_path / "n1/checkpoints/j1").mkdir(parents=True)
        (tmp_path / "n1/checkpoints/j1/3-10").write_text("in the way")
    end = until(agent, wanted(launch), is_ended)  # type: ignore[arg-type]
    expected = "3-10 False\nof 3-10\n" if is_stored else "3-10 True\nfailed\n"
    assert end.log.decode() == expected


def test_a_checkpoint_that_is_not_there_loses_the_gang_and_says_which(agent: NodeAgent, tmp_path: Path) -> None:
    url = (tmp_path / "storage").as_uri()
    launch = launch_of_program(tmp_path, url, READS, checkpoint="4-20")
    end = until(agent, wanted(launch), is_ended)  # type: ignore[arg-type]
    assert end.exit is not None
    assert end.exit.outcome is GangOutcome.LOST
    assert "cannot fetch its checkpoint 4-20" in end.exit.message


def test_a_checkpoint_that_cannot_be_stored_is_progress_only(agent: NodeAgent, tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file where a folder should be")
    url = (tmp_path / "storage").as_uri()
    ask = wanted(launch_of_program(tmp_path, url, WRITES))  # type: ignore[arg-type]
    end = until(agent, ask, lambda shard: len(shard.reports) == 2 and shard.state is GangState.ENDED)
    assert [report.kind for report in end.reports] == [ReportKind.PROGRESS, ReportKind.PROGRESS]
    assert end.exit is not None
    assert "checkpoint 1-7 could not be stored" in end.exit.message


def test_a_restarted_agent_stores_what_its_predecessor_had_not(tmp_path: Path) -> None:
    url = (tmp_path / "storage").as_uri()
    ask = wanted(launch_of_program(tmp_path, url, WRITES))  # type: ignore[arg-type]
    first = NodeAgent("n1", str(tmp_path), PROTOCOL)
    tell(first, ask)
    eventually((tmp_path / "n1/gangs/j1/1/exit.json").exists)
    first.close()
    second = NodeAgent("n1", str(tmp_path), PROTOCOL)
    try:
        until(second, ask, lambda shard: len(shard.reports) == 2)
        assert (tmp_path / "storage/j1/1-7/weights").exists()
    finally:
        second.close()


def test_older_checkpoints_go_when_one_is_kept(tmp_path: Path) -> None:
    remote = RemoteCheckpoints((tmp_path / "storage").as_uri())
    for name in ("1-5", "1-30", "2-30", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(name)
        remote.put("j1", tmp_path / name)
    remote.keep("j1", "2-30")
    remote.keep("of-nobody", "1-30")
    assert sorted(path.name for path in (tmp_path / "storage/j1").iterdir()) == ["1-30", "2-30", "notes"]


def test_a_copy_that_fails_is_tried_again(tmp_path: Path) -> None:
    tries: list[int] = []

    def copy() -> None:
        tries.append(len(tries))
        if len(tries) < transfers.TRIES:
            raise ConnectionError("the storage has a bad moment")

    made = Transfers()
    eventually(lambda: made.done("it", copy))
    made.close()
    assert len(tries) == transfers.TRIES


@pytest.mark.parametrize(
    ("name", "than", "expected"),
    [("1-5", "1-6", True), ("1-600", "2-5", True), ("2-5", "1-6", False), ("1-6", "1-6", False), ("x", "1-6", False)],
)
def test_checkpoints_are_ordered_by_token_and_step(name: str, than: str, expected: bool) -> None:
    assert is_older(name, than) is expected


def test_checkpoints_are_where_every_node_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL as it is; a folder by its absolute path, since nodes work elsewhere."""
    monkeypatch.chdir(tmp_path)
    for given, expected in (
        ("", tmp_path / "state/checkpoints"),
        ("shared", tmp_path / "shared"),
        ("/mnt/x", Path("/mnt/x")),
    ):
        assert RaySettings(address="a", checkpoints=given).checkpoints_of(Path("state")) == str(expected)
    assert RaySettings(address="a", checkpoints="s3://b/c").checkpoints_of(Path("state")) == "s3://b/c"


def test_a_folder_is_no_url() -> None:
    assert is_url("s3://bucket/gavel")
    assert not is_url("/shared/gavel")
