"""The folder that all nodes share, where it is mounted and where it is not: an agent of a node, without Ray."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends import machine
from gavel.backends.background_look import BackgroundLook
from gavel.backends.nodes import shared_folder
from gavel.backends.nodes.agent import NodeAgent
from gavel.backends.nodes.fleet import NodeView
from gavel.backends.nodes.protocol import PROTOCOL, Answer, ListedNode, Order, ShardWanted
from gavel.backends.nodes.shared_folder import MARKER, NodeFolder, OwnFolder, SharedFolder
from tests.backends.clusters import eventually
from tests.backends.ray.test_agent import a_launch, wanted


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "LOOK_EVERY_S", 0.0)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[NodeAgent]:
    made = NodeAgent("n1", str(tmp_path / "node"), PROTOCOL)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    """As the service sees it."""
    own = OwnFolder(str(tmp_path / "shared"))
    eventually(lambda: bool(own.wanted().number))
    return own.wanted()


def ask(agent: NodeAgent, folder: SharedFolder, *shards: ShardWanted) -> Answer:
    return agent.exchange(Order(epoch=1, boot_id=machine.boot_id(), folder=folder, shards=shards))


def test_a_node_without_the_mount_says_so_and_starts_nothing_until_it_is_mounted(
    agent: NodeAgent, tmp_path: Path, folder: SharedFolder
) -> None:
    """1 mounted, 2 the mount is gone and the empty mount point is left, 3 it is mounted again."""
    shared = Path(folder.path)
    assert ask(agent, folder).problem == ""
    shared.rename(tmp_path / "server")
    shared.mkdir()
    eventually(lambda: bool(ask(agent, folder).problem))
    launch = wanted(a_launch(tmp_path, checkpoints=folder.path))
    answer = ask(agent, folder, launch)
    assert answer.problem == f"the shared folder {shared} is not mounted there: mount it, and the node is used again"
    assert not answer.shards and not list(shared.iterdir())
    shared.rmdir()
    (tmp_path / "server").rename(shared)
    eventually(lambda: not ask(agent, folder).problem)
    assert ask(agent, folder, launch).shards


def test_another_folder_at_the_same_path_is_told(agent: NodeAgent, folder: SharedFolder) -> None:
    (Path(folder.path) / MARKER).write_text("0" * 32)
    eventually(lambda: "is another one there than for the service" in ask(agent, folder).problem)


def test_a_folder_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, folder: SharedFolder) -> None:
    """As of a file server that is gone: the call that reads never returns."""
    monkeypatch.setattr(shared_folder, "SILENT_S", 0.0)
    monkeypatch.setattr(shared_folder, "FIRST_LOOK_S", 0.0)
    held = threading.Event()
    monkeypatch.setattr(shared_folder, "read_number", lambda _: str(held.wait()))
    node = NodeFolder()
    eventually(lambda: "does not answer there" in node.problem(folder))
    held.set()


def test_services_of_one_folder_keep_its_number(folder: SharedFolder) -> None:
    assert OwnFolder(folder.path).wanted() == folder


def test_what_a_look_returned_is_kept_until_the_next_has_ended() -> None:
    answers = iter(["one", "two"])
    look = BackgroundLook(lambda: next(answers), "", every_s=0.0, first_s=10.0)
    assert look.newest() == "one"
    eventually(lambda: look.newest() == "two")


def test_a_node_with_a_problem_is_not_usable() -> None:
    view = NodeView(node=ListedNode(node_id="x", name="n1"), workers={})
    view.take(Answer(boot_id="b", node_boottime_s=0.0, problem="not mounted"))
    assert (view.is_usable, view.problem) == (False, "not mounted")
    view.take(Answer(boot_id="b", node_boottime_s=0.0))
    assert (view.is_usable, view.problem) == (True, "")
