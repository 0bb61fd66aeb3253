"""What tests of sandboxes share: how a backend gets them, scripts that run in one, and the launch of a gang."""

from pathlib import Path
from typing import Any

import pytest

from gavel.backends import machine, sandbox_mounts
from gavel.backends.harness import exit_of
from gavel.backends.launch import Preparation
from gavel.backends.sandbox import bubblewrap
from gavel.types import GangExit
from tests.backends.clusters import GRACE_S, LocalHarness, script

needs_bubblewrap = pytest.mark.skipif(
    bool(bubblewrap().problem), reason=bubblewrap().problem or "bubblewrap makes sandboxes here"
)
HEARS = "id -u; (setsid env -i sleep 86397.5 &); trap 'echo heard; exit 75' TERM; while :; do sleep 0.05; done"


def reopen(harness: LocalHarness, *, lease_grace_s: float = GRACE_S, **over: Any) -> None:
    """Open the backend again with another preparation."""
    harness.backend.close()
    harness.backend = harness.open(preparation=Preparation(**over), lease_grace_s=lease_grace_s)


def ran(harness: LocalHarness, text: str, *workers: str, **over: object) -> GangExit:
    """How a gang of this shell script ended."""
    harness.backend.execute(script(harness, text, *workers, **over))
    return exit_of(harness, "j1")


def sleepers(seconds: str) -> list[str]:
    """The processes of this machine that sleep so long, as the daemon of one of these tests."""
    command = b"sleep\0" + seconds.encode()
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if read(path).startswith(command)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def a_launch(root: Path, folder: Path) -> dict[str, Any]:
    """The launch of a gang whose lease ends soon, as far as its supervisor needs it."""
    shown = sandbox_mounts.common_folders() | {str(root / "src"): "ro"}
    return {
        **{"job_id": "j1", "generation": 1, "user": "ann", "argv": ["bash", "-c", HEARS], "cwd": str(folder / "job")},
        "ranks": [{"cpus": [], "env": {"PATH": "/usr/bin:/bin", "GAVEL_NODE": "here"}}],
        **{"lease_expires_boottime_s": machine.boottime_s() + 3, "lease_grace_s": 20},
        **{"log_path": str(root / "j1.log"), "log_bytes": 1 << 16},
        **{"named": {}, "job_folders": ["/"], "hidden": [], "own": {str(folder): "ro", str(folder / "job"): "rw"}},
        "sandbox": {
            **{"command": bubblewrap().path, "tmp": str(folder / "tmp"), "mentioned": [], "devices": []},
            "shown": {path: access for path, access in shown.items() if not path.startswith("/root")},
        },
    }
