"""Output files at a URL: a real folder behind fsspec, reached as any other storage is, and real agents of two nodes."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import httpx
import pytest
from starlette.responses import Response

from api.http.files import stored_file_response
from gavel.backends.nodes import transfers
from gavel.backends.nodes.agent import NodeAgent
from gavel.backends.nodes.gang import UNTOLD_LIMIT_S
from gavel.backends.nodes.housekeeping import OUTPUTS_KEPT_S, clear
from gavel.backends.nodes.output_sync import OutputSync
from gavel.backends.nodes.protocol import PROTOCOL, ShardSeen
from gavel.backends.nodes.remote_outputs import RemoteOutputs
from gavel.backends.nodes.stored_outputs import StoredOutputs, outputs_of
from gavel.backends.nodes.transfers import Transfers
from gavel.backends.outputs import Outputs
from gavel.config import Settings
from gavel.errors import BackendUnavailable, NotFound
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import eventually
from tests.backends.ray.test_agent import a_launch, until, wanted
from tests.backends.ray.test_gang import a_gang, ended, silent

pytest.importorskip("fsspec", reason="fsspec is not installed (extra [ray])")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PAUSE_S", 0.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "storage/_outputs").as_uri()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[[str], NodeAgent]]:
    """Makes the agent of a node; each has a disk of its own."""
    made: list[NodeAgent] = []

    def agent(name: str) -> NodeAgent:
        made.append(NodeAgent(name, str(tmp_path), PROTOCOL))
        return made[-1]

    yield agent
    for each in made:
        each.close()


def is_over(shard: ShardSeen) -> bool:
    return shard.state is GangState.ENDED and not shard.has_more


def runs(agent: NodeAgent, folder: Path, url: str, text: str, generation: int = 1) -> ShardSeen:
    """What is told of a gang that runs this shell script, once the node has handed over all of it."""
    launch = a_launch(folder, generation=generation, outputs=url, shown_folders=(f"{folder}:rw",))
    given = replace(launch.instruction, argv=("sh", "-c", f"cd $GAVEL_OUTPUT_DIR; {text}"))
    return until(agent, wanted(replace(launch, instruction=given)), is_over)


def listed(url: str) -> dict[str, int]:
    return {each.path: each.size_bytes for each in StoredOutputs(url).listing("j1").files}


def test_the_next_gang_finds_the_files_on_another_node(
    nodes: Callable[[str], NodeAgent], tmp_path: Path, url: str
) -> None:
    """1 written on n1, 2 changed, deleted and added on n2, 3 whole on n1 again, whose own copy is old by then."""
    first, second = nodes("n1"), nodes("n2")
    runs(first, tmp_path, url, "mkdir curves; echo one > curves/a; echo gone > b; ln -s /etc/passwd link")
    assert listed(url) == {"b": 5, "curves/a": 4}
    end = runs(second, tmp_path, url, "cat curves/a b; rm b; echo three >> curves/a; echo c > c", 2)
    assert end.log == b"one\ngone\n"
    assert listed(url) == {"c": 2, "curves/a": 10}
    assert runs(first, tmp_path, url, "ls; cat curves/a", 3).log == b"c\ncurves\none\nthree\n"


def test_a_file_that_is_on_the_node_is_not_fetched_again(
    nodes: Callable[[str], NodeAgent], tmp_path: Path, url: str
) -> None:
    agent = nodes("n1")
    first = runs(agent, tmp_path, url, "echo one > a; ls -i a").log
    assert runs(agent, tmp_path, url, "ls -i a", 2).log == first


def test_a_file_is_stored_while_the_gang_runs(nodes: Callable[[str], NodeAgent], tmp_path: Path, url: str) -> None:
    """So that a node that is lost takes little with it."""
    launch = a_launch(tmp_path, outputs=url)
    waits = "cd $GAVEL_OUTPUT_DIR; echo one > a; while [ ! -e $GAVEL_GANG_DIR/end ]; do sleep 0.05; done"
    ask = wanted(replace(launch, instruction=replace(launch.instruction, argv=("sh", "-c", waits))))
    agent = nodes("n1")

    def is_stored(shard: ShardSeen) -> bool:
        for each in agent._shards.values():
            if each._outputs is not None:
                each._outputs._due_boottime_s = 0.0
        return listed(url) == {"a": 4}

    assert until(agent, ask, is_stored).state is GangState.RUNNING
    (tmp_path / "n1/gangs/j1/1/job/end").touch()
    until(agent, ask, is_over)


def test_a_gang_whose_files_cannot_be_fetched_or_stored_is_lost(
    nodes: Callable[[str], NodeAgent], tmp_path: Path, url: str
) -> None:
    nowhere = "no-such-storage://bucket/_outputs"
    end = runs(nodes("n1"), tmp_path, nowhere, "true").exit
    assert end is not None and end.outcome is GangOutcome.LOST
    assert f"cannot fetch its output files from {nowhere}" in end.message
    (tmp_path / "storage").mkdir()
    breaks = f"echo one > a; rm -rf {tmp_path}/storage; touch {tmp_path}/storage"
    end = runs(nodes("n2"), tmp_path, url, breaks, 2).exit
    assert end is not None and end.outcome is GangOutcome.LOST
    assert f"its output files could not be stored at {url}" in end.message


def test_a_fetch_that_was_cut_off_deletes_nothing(tmp_path: Path, url: str) -> None:
    """What is here then says nothing about what the job has deleted."""
    sync = OutputSync(("j1", 1), url=url, outputs=tmp_path / "n/j1", gang=tmp_path, transfers=Transfers())
    RemoteOutputs(url).put("j1", "a", iter([b"one"]))
    eventually(sync.is_here)
    (tmp_path / "n/j1/a").unlink()
    (tmp_path / "n/.j1.json").unlink()
    eventually(sync.is_stored)
    assert listed(url) == {"a": 3}


def test_a_fetch_whose_gang_is_over_leaves_the_folder_to_the_next_gang(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 the lease ends while a file is fetched, 2 the next gang on the node waits, 3 it has all files."""
    for name in ("a", "b"):
        RemoteOutputs(url).put("j1", name, iter([b"one"]))
    held, fetch, begun = threading.Event(), RemoteOutputs.open, threading.Event()

    def slow(remote: RemoteOutputs, job_id: str, path: str) -> BinaryIO:
        begun.set()
        held.wait()
        return fetch(remote, job_id, path)

    monkeypatch.setattr(RemoteOutputs, "open", slow)
    copies = Transfers()
    first, second = (
        OutputSync(
            ("j1", generation), url=url, outputs=tmp_path / "n/j1", gang=tmp_path / str(generation), transfers=copies
        )
        for generation in (1, 2)
    )
    assert not first.is_here()
    assert begun.wait(30)
    assert not first.is_stored() and not second.is_here()
    held.set()
    eventually(second.is_here)
    assert sorted(path.name for path in (tmp_path / "n/j1").iterdir()) == ["a", "b"]
    copies.close()


def test_a_record_that_a_job_forged_reaches_nothing_outside(tmp_path: Path, url: str) -> None:
    sync = OutputSync(("j1", 1), url=url, outputs=tmp_path / "n/j1", gang=tmp_path, transfers=Transfers())
    RemoteOutputs(url).put("j2", "mine", iter([b"two"]))
    eventually(sync.is_here)
    record = (tmp_path / "n/.j1.json").read_text()
    (tmp_path / "n/.j1.json").write_text(record.replace('"files": {', '"files": {"../j2/mine": [1, 1, 1, ""]'))
    (tmp_path / "n/j1").rmdir()
    (tmp_path / "n/j1").symlink_to(tmp_path)
    eventually(sync.is_stored)
    assert listed(url) == {} and RemoteOutputs(url).files("j2")


def test_a_part_that_ended_is_lost_with_its_node_while_files_are_missing(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0")
    gang.take("n0", replace(ended(GangOutcome.EXITED), has_more=True, ended_node_boottime_s=1e9), 0.0)
    gang.look(0.3, {}, silent, silent)
    assert gang.state is GangState.RUNNING
    gang.look(0.3, {"n0": "Ray lost node n0"}, silent, silent)
    assert gang.exit is not None and gang.exit.outcome is GangOutcome.LOST
    slow = a_gang(tmp_path, "n0")
    slow.take("n0", replace(ended(GangOutcome.EXITED), has_more=True), UNTOLD_LIMIT_S + 1e9)
    slow.look(0.3, {}, silent, silent)
    assert slow.exit is not None and "did not hand over" in slow.exit.message


def test_a_node_keeps_no_copy_for_long(tmp_path: Path) -> None:
    for name in ("j1", ".j1.json", "j2", ".j2.json", "j3"):
        path = tmp_path / "outputs" / name
        path.mkdir(parents=True) if "json" not in name else path.write_text("{}")
        if "j3" not in name:
            os.utime(path, (0, OUTPUTS_KEPT_S))
    clear(tmp_path, {"j2": ""}, 60.0)
    assert sorted(path.name for path in (tmp_path / "outputs").iterdir()) == [".j2.json", "j2", "j3"]


# --- what the service hands out -----------------------------------------------------------------------------------


def test_no_path_leads_out_of_a_jobs_files(url: str) -> None:
    RemoteOutputs(url).put("j1", "a/b", iter([b"one"]))
    RemoteOutputs(url).put("j2", "c", iter([b"two"]))
    for path in ("../j2/c", "a/../../j2/c", "/etc/passwd", "a", "", "a//b", "no", "a/b/c", "a\0"):
        with pytest.raises(NotFound, match="has no output file"):
            StoredOutputs(url).open("j1", path)
    with pytest.raises(NotFound):
        StoredOutputs(url).listing("../j2")


def test_files_of_jobs_that_ended_long_ago_are_deleted(url: str) -> None:
    for job_id in ("j1", "j2"):
        RemoteOutputs(url).put(job_id, "a", iter([b"one"]))
    StoredOutputs(url).clear(lambda job_id, _: job_id == "j2", 60.0)
    assert RemoteOutputs(url).jobs() == ["j1"]


def test_a_storage_that_does_not_answer_is_named(tmp_path: Path) -> None:
    for ask in (lambda stored: stored.listing("j1"), lambda stored: stored.open("j1", "a")):
        with pytest.raises(BackendUnavailable, match="storage of output files does not answer"):
            ask(StoredOutputs("no-such-storage://bucket"))


def test_the_settings_say_where_output_files_are(tmp_path: Path) -> None:
    at_url = Settings(state_dir=tmp_path, backend="ray", ray_checkpoint_dir=(tmp_path / "storage").as_uri())
    RemoteOutputs((tmp_path / "storage/_outputs").as_uri()).put("j1", "a", iter([b"one"]))
    (file,) = outputs_of(at_url).listing("j1").files
    assert (file.path, file.size_bytes, file.modified_at_s > 1e9) == ("a", 3, True)
    assert isinstance(outputs_of(Settings(state_dir=tmp_path)), Outputs)


@pytest.mark.parametrize(
    ("header", "status", "content", "shown"),
    [
        ("", 200, b"0123456789", None),
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=3-", 206, b"3456789", "bytes 3-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=1-2,4-5", 200, b"0123456789", None),
    ],
)
def test_a_stored_file_is_sent_whole_or_in_part(
    url: str, header: str, status: int, content: bytes, shown: str | None
) -> None:
    RemoteOutputs(url).put("j1", "ü #1?.csv", iter([b"01234", b"56789"]))

    async def answer(scope: object, receive: object, send: object) -> None:
        opened = StoredOutputs(url).open("j1", "ü #1?.csv")
        response: Response = stored_file_response(opened, "ü #1?.csv", header)
        await response(scope, receive, send)  # type: ignore[arg-type]

    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(answer)) as client:  # type: ignore[arg-type]
            return await client.get("http://service/")

    got = asyncio.run(get())
    assert (got.status_code, got.content, got.headers.get("Content-Range")) == (status, content, shown)
    assert got.headers["Content-Disposition"] == "attachment; filename*=utf-8''%C3%BC%20%231%3F.csv"
