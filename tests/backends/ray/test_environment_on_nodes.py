"""What a job brings to the nodes of a real Ray cluster: code, setup, secret, image; and what it leaves there."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends.harness import exit_of
from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec
from gavel.types import GangOutcome
from tests.backends.ray.clusters import RayHarness, a_service_on
from tests.backends.ray.test_gangs_over_nodes import gang, log_lines
from tests.backends.test_containers import image
from tests.backends.test_inputs import SHOW, Server, server

__all__ = ["image", "server"]

pytestmark = pytest.mark.ray

SECRET = "s3cret-value-of-ann"


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[LocalRayCluster]:
    nodes = [NodeSpec(name=f"node-{index}", resources={"gavel:a": 1}) for index in range(2)]
    with LocalRayCluster(nodes) as cluster:
        yield cluster


@pytest.fixture
def spread(two_nodes: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHarness]:
    """A service on the two nodes: worker a-0 on the first, a-1 on the other."""
    with a_service_on(two_nodes, tmp_path, monkeypatch, workers=2) as made:
        yield made


def test_ranks_on_two_nodes_have_code_environment_and_secret(spread: RayHarness, two_nodes: LocalRayCluster) -> None:
    """1 megabytes of code come in several packs, 2 each node builds its own environment, 3 the ranks start at the same
    time though one node takes longer, 4 nothing that Ray writes has the secret."""
    spread.store_secret("ann", "TOKEN", SECRET)
    code = spread.store_code({"data": os.urandom(20_000_000), "train.sh": b"wc -c < data"})
    own = {"python": spread.python, "code": code, "secrets": ("TOKEN",)}
    slow = 'case "$VIRTUAL_ENV" in *node-1*) sleep 2;; esac; date +%s.%N > "$VIRTUAL_ENV/made"'
    show = 'date +%s.%N; sh train.sh; echo "$TOKEN"; ls "$VIRTUAL_ENV/made"'
    spread.backend.execute(gang(spread, ("sh", "-c", show), ("a-0", "a-1"), setup=slow, **own))
    end = exit_of(spread, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    lines = log_lines(spread)
    begun = [float(line.split()[1]) for line in lines if "." in line and "/" not in line]
    made = [float(Path(line.split()[1]).read_text()) for line in lines if line.endswith("/made")]
    assert len(begun) == len(made) == 2 and min(begun) > max(made)
    assert [line for line in lines if "20000000" in line] == ["[0] 20000000", "[1] 20000000"]
    assert [line for line in lines if "***" in line] == ["[0] ***", "[1] ***"]
    written = [path for path in two_nodes.folder.rglob("*") if path.is_file()]
    assert written and not [path for path in written if SECRET.encode() in path.read_bytes()]
    nodes = [path for path in spread.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert {path.name for path in nodes} == {"launch.json"}


def test_each_node_fetches_an_input_once(spread: RayHarness, server: Server) -> None:
    server.content = b"0123456789\n"
    for generation in (1, 2):
        data = {"train": server.url}
        spread.backend.execute(gang(spread, ("sh", "-c", SHOW), ("a-0", "a-1"), generation, data=data))
        end = exit_of(spread, "j1", generation)
        assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    shown = [line for line in log_lines(spread) if line.endswith("0123456789")]
    assert shown == ["[0] 0123456789"] * 2 + ["[1] 0123456789"] * 2
    assert len(list(spread.folder.rglob("inputs/*/*/train.txt"))) == 2


def test_an_output_folder_is_the_same_on_every_node(spread: RayHarness) -> None:
    spread.backend.execute(gang(spread, ("sh", "-c", 'echo $RANK > "$GAVEL_OUTPUT_DIR/$RANK"'), ("a-0", "a-1")))
    assert exit_of(spread, "j1").exit_code == 0
    assert [each.path for each in spread.outputs().listing("j1").files] == ["0", "1"]


def test_ranks_on_two_nodes_run_in_an_image(spread: RayHarness, image: str) -> None:
    """Both nodes are on one machine, so their containers must not be taken for each other."""
    code = spread.store_code({"word": b"hello"})
    show = 'test ! -e /usr && cat word && echo " $RANK" && sleep $RANK'
    spread.backend.execute(gang(spread, ("sh", "-c", show), ("a-0", "a-1"), image=image, code=code))
    end = exit_of(spread, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert log_lines(spread) == ["[0] hello 0", "[1] hello 1"]


def test_an_interpreter_that_is_on_no_node_is_named(spread: RayHarness) -> None:
    over = {"python": "/no/such/python", "code": spread.store_code({"a": b"a"})}
    spread.backend.execute(gang(spread, (sys.executable, "-V"), ("a-0", "a-1"), **over))
    end = exit_of(spread, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED
    assert "the interpreter /no/such/python is not on node node-" in end.message
