"""Programs of jobs as Unix users of their own on the nodes of a real Ray cluster, whose agents are root."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gavel.backends.harness import exit_of
from gavel.backends.launch import Preparation
from gavel.backends.ray.local_cluster import LocalRayCluster
from gavel.backends.sandbox import bubblewrap
from gavel.backends.unix_users import open_state
from gavel.types import GangOutcome
from tests.backends.ray.clusters import RayHarness, a_service_on
from tests.backends.ray.test_environment_on_nodes import two_nodes
from tests.backends.ray.test_gangs_over_nodes import gang, log_lines
from tests.backends.test_job_users import serving

__all__ = ["two_nodes"]

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        os.geteuid() != 0 or bool(bubblewrap().problem), reason="needs root, to be other users, and bubblewrap"
    ),
]

UID = 2_000_001


@pytest.fixture
def spread(two_nodes: LocalRayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHarness]:
    """A service on the two nodes, with folders that all users may pass, which those of pytest are not."""
    with TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with a_service_on(two_nodes, Path(name), monkeypatch, workers=2) as made:
            open_state(str(made.state_dir))  # as a service does at its start
            yield made


def test_ranks_on_two_nodes_have_the_uid_that_the_service_gives(spread: RayHarness) -> None:
    """Each has a copy of the code there, the environment of its setup, and the checkpoints that both nodes share.

    A process of that user reads its input on each node.
    """
    preparation = Preparation(job_users=f"{UID}-{UID + 9}", uid_of=lambda user: UID, isolation="sandbox")
    spread.crash()
    spread.backend = spread.open(preparation=preparation)
    spread.wait_until(lambda seen: len(seen.cluster.workers) == 2)
    train = b'id -u; touch own "$GAVEL_CHECKPOINT_DIR/$RANK" && ls "$VIRTUAL_ENV/made" && cat "$GAVEL_DATA_WORDS"'
    code = spread.store_code({"train.sh": train})
    own = {"python": spread.python, "code": code, "setup": 'id -u > "$VIRTUAL_ENV/made"'}
    with serving(b"words\n") as (url, gate, uids):
        gate.set()
        spread.backend.execute(gang(spread, ("sh", "train.sh"), ("a-0", "a-1"), data={"words": url}, **own))
        end = exit_of(spread, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert [line for line in log_lines(spread) if str(UID) in line] == [f"[0] {UID}", f"[1] {UID}"]
    assert log_lines(spread).count("[0] words") == log_lines(spread).count("[1] words") == 1 and set(uids) == {UID}
    written = [path for path in spread.folder.rglob("*") if path.is_file() and path.parent.name == "j1"]
    assert {path.name: path.stat().st_uid for path in written if path.name in "01"} == {"0": UID, "1": UID}, written
