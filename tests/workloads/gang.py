"""A gang directory made by hand, and real processes in it: the service's side of docs/gang-protocol.md."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gavel_runtime._lease import boottime_s

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0
COUNT = """
import json, os, time
from pathlib import Path
from gavel_runtime import job

done = []


def save(path):
    (path / "done.json").write_text(json.dumps(done))


def load(path):
    done[:] = json.loads((path / "done.json").read_text())


for step in job.steps(checkpoint=save, restore=load, total=None):
    time.sleep(STEP_S)
    done.append(step)
    Path(os.environ["OUT"], f"rank-{job.rank}").write_text(str(len(done)))
print("trained", len(done))
"""


def counting(step_s: float = 0.005) -> str:
    """A job that takes `step_s` a step, keeps the list of the steps it did, and writes their number to rank-RANK."""
    return COUNT.replace("STEP_S", str(step_s))


def until(condition: Callable[[], Any]) -> Any:
    """The first true value of the condition."""
    deadline_s = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"not within {LIMIT_S} s: {condition}"
        time.sleep(0.005)
    return value


class Gang:
    """One gang of token 7 below `root`; `stop` kills what is left of it."""

    def __init__(self, root: Path, *, generation: int = 7) -> None:
        self.root = root
        self.generation = generation
        self.directory = root / "gangs" / str(generation)
        self.checkpoints = root / "checkpoints"
        self.directory.mkdir(parents=True)
        self.ranks: list[subprocess.Popen[str]] = []
        self.expires_boottime_s = 0.0

    def environment(self, rank: int, world_size: int, total: int, start: int, checkpoint: str) -> dict[str, str]:
        return {
            "GAVEL_JOB_ID": "job-1",
            "GAVEL_GENERATION": str(self.generation),
            "GAVEL_RANK": str(rank),
            "GAVEL_WORLD_SIZE": str(world_size),
            "GAVEL_GANG_DIR": str(self.directory),
            "GAVEL_CHECKPOINT_DIR": str(self.checkpoints),
            "GAVEL_CHECKPOINT": checkpoint,
            "GAVEL_START_STEP": str(start),
            "GAVEL_TOTAL_STEPS": str(total),
            "GAVEL_LEASE_EXPIRES_BOOTTIME_S": repr(self.expires_boottime_s),
            "GAVEL_GANG_KEY": "a secret",
            "GAVEL_ACCELERATOR_TYPE": "avx512",
            "GAVEL_WORKER": f"avx512-{rank}",
        }

    def start(
        self,
        *argv: str,
        ranks: range = range(1),
        world_size: int | None = None,
        total: int = 40,
        lease_s: float = 600.0,
        start: int = 0,
        checkpoint: Path | None = None,
        **extra: str,
    ) -> "Gang":
        """Start the ranks; argv follows `python`, or is the text of a script."""
        self.expires_boottime_s = boottime_s() + lease_s
        for rank in ranks:
            gavel = self.environment(rank, world_size or len(ranks), total, start, str(checkpoint or ""))
            self.ranks.append(launch(argv, {**gavel, "OUT": str(self.root), **extra}))
        return self

    def lease(self, expires_in_s: float, *, stop: bool = False, save_asked_s: float = 0.0) -> float:
        """Replace lease.json; the instant at which the lease now ends."""
        expires_boottime_s = boottime_s() + expires_in_s
        fields = {"expires_boottime_s": expires_boottime_s, "stop": stop, "save_asked_s": save_asked_s}
        temporary = self.directory / "lease.json.tmp"
        temporary.write_text(json.dumps(fields))
        temporary.rename(self.directory / "lease.json")
        return expires_boottime_s

    def reports(self) -> list[dict[str, Any]]:
        """Every whole line of reports.jsonl."""
        path = self.directory / "reports.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def done(self, rank: int = 0) -> int:
        """Steps that a rank of the counting job has done."""
        path = self.root / f"rank-{rank}"
        return int(path.read_text() or 0) if path.exists() else 0

    def finish(self) -> tuple[list[int], list[str]]:
        """Exit codes and output of every rank."""
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in self.ranks]
        return [process.returncode for process in self.ranks], outputs

    def names(self) -> list[str]:
        """What is in the checkpoint directory, hidden names included."""
        return sorted(path.name for path in self.checkpoints.iterdir()) if self.checkpoints.exists() else []

    def stop(self) -> None:
        """Nothing of the gang is left afterwards."""
        for process in self.ranks:
            process.kill()
            process.communicate()


def launch(argv: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A python process with this environment and no other; output and errors together."""
    given = ("-c", *argv) if len(argv) == 1 else argv
    base = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "runtime"),
        "OPENBLAS_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
    }
    return subprocess.Popen(
        (sys.executable, "-B", *given),
        env=base | environment,
        cwd=environment.get("OUT"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
