"""A job of several nodes on the runtime: counts up in its checkpoint, and gathers from all ranks in each step."""

import sys
import time
from pathlib import Path

from gavel_runtime import job

count = 0


def save(path: Path) -> None:
    (path / "count").write_text(str(count))


def load(path: Path) -> None:
    global count
    count = int((path / "count").read_text())


for step in job.steps(checkpoint=save, restore=load, checkpoint_every_s=0.2):
    ranks = job.all_gather(b"%d" % job.rank)
    assert ranks == tuple(b"%d" % rank for rank in range(job.world_size)), ranks
    count += 1
    assert count == step + 1, f"a step was lost: {count} at {step}"
    time.sleep(0.02)
print(f"counted to {count}")
sys.exit(0)
