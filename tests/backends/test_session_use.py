"""When a session was last used, wherever its gang is."""

import os
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.folder import log_path
from gavel.backends.nodes.allocation import Allocation
from gavel.backends.nodes.protocol import Group
from gavel.backends.session_use import SessionUse, connected_file, note_connection, sees_use
from gavel.config import Settings

GANG = ("j1", 2)
SINCE_S = 100.0


def settings(folder: Path, **over: Any) -> Settings:
    return Settings(state_dir=folder / "state", public_url="https://gavel.example", **over)


def slurm(folder: Path) -> dict[str, Any]:
    return {"backend": "slurm", "slurm": {"shared_dir": str(folder / "shared")}}


def an_allocation(folder: Path, name: str = "gavel/j1/2") -> Allocation:
    return Allocation.make(folder / "shared" / "allocations", Group(name=name, bundles=(("n0", "gpu", 1),)), epoch=1)


@pytest.mark.parametrize(
    ("over", "sees"),
    [
        ({}, True),
        ({"backend": "slurm"}, True),
        ({"backend": "kubernetes", "kubernetes": {"orders": "connection"}}, True),
        ({"backend": "ray"}, True),
        ({"backend": "simulated"}, False),
        ({"backend": "several", "backends": {"a": {"backend": "local"}, "b": {"backend": "slurm"}}}, True),
        ({"backend": "several", "backends": {"a": {"backend": "local"}, "b": {"backend": "simulated"}}}, False),
    ],
)
def test_use_is_seen_where_all_backends_show_connections(tmp_path: Path, over: dict[str, Any], sees: bool) -> None:
    chosen = settings(tmp_path, **over)
    assert sees_use(chosen) is sees
    assert SessionUse(chosen, SINCE_S).last_s(*GANG) == (SINCE_S if sees else None)


def test_a_connection_to_a_session_of_this_machine_counts(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    use = SessionUse(chosen, SINCE_S)
    note_connection(chosen, "", GANG, 200.0)  # its gang is not there: nothing is remembered, and nothing breaks
    connected_file(chosen.state_dir, *GANG).parent.mkdir(parents=True)
    assert use.last_s(*GANG) == SINCE_S
    note_connection(chosen, "", GANG, 200.0)
    note_connection(chosen, "", ("j1", 1), 900.0)
    assert use.last_s(*GANG) == 200.0


def test_a_connection_to_a_session_on_a_node_counts_whichever_process_makes_it(tmp_path: Path) -> None:
    """1 no allocation yet, 2 a connection, 3 one to another gang, 4 one by a process with a state folder of its own."""
    chosen = settings(tmp_path, **slurm(tmp_path))
    use = SessionUse(chosen, SINCE_S)
    assert use.last_s(*GANG) == SINCE_S
    an_allocation(tmp_path)
    an_allocation(tmp_path, "gavel/j2/1")
    note_connection(chosen, "", GANG, 200.0)
    note_connection(chosen, "", ("j2", 1), 900.0)
    assert use.last_s(*GANG) == 200.0
    other = Settings(state_dir=tmp_path / "elsewhere", **slurm(tmp_path))
    note_connection(other, "", GANG, 300.0)
    assert use.last_s(*GANG) == 300.0


def test_of_several_regions_that_of_the_job_counts(tmp_path: Path) -> None:
    backends = {"here": {"backend": "local"}, "far": slurm(tmp_path)}
    chosen = settings(tmp_path, backend="several", backends=backends)
    use = SessionUse(chosen, SINCE_S)
    an_allocation(tmp_path)
    note_connection(chosen, "far", GANG, 200.0)
    assert use.last_s(*GANG) == 200.0
    connected_file(chosen.state_dir / "regions" / "here", *GANG).parent.mkdir(parents=True)
    note_connection(chosen, "here", GANG, 300.0)
    note_connection(chosen, "mars", GANG, 400.0)
    assert use.last_s(*GANG) == 300.0


def test_what_it_prints_counts(tmp_path: Path) -> None:
    chosen = settings(tmp_path, **slurm(tmp_path))
    log = log_path(chosen.state_dir, GANG[0])
    log.parent.mkdir(parents=True)
    log.write_text("hello")
    os.utime(log, (250.0, 250.0))
    assert SessionUse(chosen, SINCE_S).last_s(*GANG) == 250.0
