"""A disk loses what it said to have written: the job goes on from the checkpoint before, and that counts."""

from pathlib import Path

import pytest

from gavel.backends.checkpoint_retention import CHECKPOINT
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.serving import LIMIT_S

PROGRAM = """
import json, time
from gavel_runtime import job

done = []


def save(folder):
    (folder / "done.json").write_text(json.dumps(done))


def restore(folder):
    done[:] = json.loads((folder / "done.json").read_text())


for step in job.steps(checkpoint=save, restore=restore, checkpoint_every_s=4.0):
    done.append(step)
    time.sleep(0.02)
assert done == list(range(800)), done
"""


def names(folder: Path) -> list[str]:
    """The whole checkpoints in a folder, the newest last."""
    whole = (each.name for each in folder.iterdir() if CHECKPOINT.fullmatch(each.name))
    return sorted(whole, key=lambda name: [*map(int, name.split("-"))])


@pytest.mark.timeout(240)
def test_a_job_is_back_at_the_checkpoint_that_it_could_load_and_does_all_steps(
    running: ServiceProcess, client: Client
) -> None:
    """1 paused with two checkpoints, 2 the newer one is torn, 3 the job is back at the other one, and then done."""
    job_id = client.submit(argv=["python", "-c", PROGRAM], total_steps=800)["id"]
    folder = running.state_dir / "checkpoints" / job_id
    assert wait_until(lambda: 0 < client.job(job_id)["steps_done"] < client.job(job_id)["steps_reported"] - 20, LIMIT_S)
    client.pause(job_id)
    assert wait_until(lambda: client.job(job_id)["state"] == "PAUSED", LIMIT_S)
    kept, lost = names(folder)[-2:]
    (folder / lost / "done.json").write_text("[0, 1")
    client.resume(job_id)
    assert wait_until(lambda: client.job(job_id)["steps_done"] == int(kept.partition("-")[2]), LIMIT_S)
    ended = client.wait(job_id, LIMIT_S)
    assert (ended["state"], ended["steps_done"]) == ("COMPLETED", 800)
    assert f"Checkpoint {lost} could not be loaded" in "".join(client.read_logs(job_id))
