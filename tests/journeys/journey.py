"""Scripts as users have them, with the few lines that make them preemptible, run with the real libraries."""

import difflib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.gang import Gang

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
ENVIRONMENT = ROOT / ".venv-frameworks"
PYTHON = Path(os.environ.get("GAVEL_FRAMEWORKS_PYTHON", ENVIRONMENT / "bin" / "python"))
IS_WHOLE = PYTHON.parent.parent != ENVIRONMENT or (ENVIRONMENT / ".ready-requirements-frameworks").exists()
LACKS_LIBRARIES = (
    "loads real libraries: make test-full"
    if os.environ.get("GAVEL_TEST_PROFILE") != "full"
    else ""
    if IS_WHOLE
    else "there is no whole .venv-frameworks with the training libraries: run `make frameworks-env`"
)
WITH_LIBRARIES = pytest.mark.skipif(bool(LACKS_LIBRARIES), reason=LACKS_LIBRARIES)
LIMIT_S = 300.0
KINDS = ("cnn", "trainer", "ddp", "huggingface", "lightning", "jax", "keras")


def changed_lines(kind: str) -> list[str]:
    """The lines of the changed script that the original does not have."""
    texts = [(SCRIPTS / kind / name).read_text().splitlines() for name in ("original.py", "changed.py")]
    lines = difflib.unified_diff(*texts, lineterm="", n=0)
    return [line for line in lines if line.startswith("+") and not line.startswith("+++") and line[1:].strip()]


@dataclass
class Journey:
    """The changed script of one kind, or any script, as a job: gang after gang, each stopped before a step."""

    kind: str
    root: Path
    world_size: int = 1
    step: int = 0
    checkpoint: str = ""
    generation: int = 0
    outputs: list[str] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, int] = field(default_factory=dict)  # parameters of the execution plan

    def run(self, stop_step: int | None = None) -> list[int]:
        """Exit codes of one gang that resumes from the last checkpoint, and stops before the step."""
        self.generation += 1
        gang = Gang(self.root, generation=self.generation)
        port = _free_port()
        ranks = [self._start(gang, rank, stop_step, port) for rank in range(self.world_size)]
        self.outputs = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        self.reports += gang.reports()
        kept = [report for report in gang.reports() if report.get("checkpoint")]
        if kept:
            self.step, self.checkpoint = kept[-1]["step"], str(gang.checkpoints / kept[-1]["checkpoint"])
        return [rank.returncode for rank in ranks]

    def final(self) -> list[float]:
        """The figures that the script prints at its end."""
        (line,) = [line for line in "\n".join(self.outputs).splitlines() if line.startswith("final")]
        return [float(figure) for figure in line.split()[1:]]

    def _start(self, gang: Gang, rank: int, stop_step: int | None, port: int) -> "subprocess.Popen[str]":
        gang.expires_boottime_s = 1e9
        gavel = gang.environment(rank, self.world_size, 0, self.step, self.checkpoint)
        environment = {
            **gavel,
            **MACHINE,
            "HOME": str(self.root),
            "GAVEL_TOTAL_STEPS": "",
            **{f"GAVEL_PLAN_{name.upper()}": str(value) for name, value in self.plan.items()},
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        if stop_step is not None:
            environment["GAVEL_STOP_STEP"] = str(stop_step)
        return subprocess.Popen(
            (PYTHON, SCRIPTS / self.kind if self.kind.endswith(".py") else SCRIPTS / self.kind / "changed.py"),
            env=environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


MACHINE = {  # the variables of a user who has activated the environment with the libraries
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT / "runtime"),
    "OMP_NUM_THREADS": "1",
    "LANG": "C.UTF-8",
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "torch",
}


def by_hand(kind: str, script: str, root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A script run by hand, as its author does."""
    command = (PYTHON, SCRIPTS / kind / script, *argv)
    environment = {**MACHINE, "HOME": str(root)}
    return subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
