"""What the whole service does over REST on a cluster of one node with three workers, whatever the cluster is."""

from pathlib import Path

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

LIMIT_S = 240.0
PROGRAM = """
import os, pathlib
from gavel_runtime import job

for step in job.steps(total=30, checkpoint=lambda folder: (folder / "state").write_text("here"), restore=print):
    pass
print(os.environ["TOKEN"], pathlib.Path("word").read_text())
(job.output_dir / "result").write_text("done")
"""


def trains_and_survives_a_killed_service(service: ServiceProcess) -> None:
    """1 submit, 2 it trains there, 3 kill -9 of the service, 4 the next one finishes it exactly."""
    with service as running:
        with Client(running.url, running.operator_token) as gavel:
            assert wait_until(lambda: len(gavel.cluster()["workers"]) == 3, 90)
            job = gavel.submit(kind="mlp-b256", total_steps=150)
            assert wait_until(lambda: gavel.job(job["id"])["steps_reported"] > 0, 120)
        running.kill()
        running.start()
        with Client(running.url, running.operator_token) as gavel:
            done = gavel.wait(job["id"], timeout_s=LIMIT_S)
            assert (done["state"], done["steps_done"]) == ("COMPLETED", 150), done["message"]
            assert [node["name"] for node in gavel.cluster()["nodes"]] == ["here"]
    assert not running.processes_left()


def brings_its_code_and_leaves_its_results(service: ServiceProcess, folder: Path, outputs: Path) -> None:
    """1 code is uploaded, a secret stored, 2 the job runs it on a node, 3 files and checkpoint are downloaded."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(PROGRAM)
    (project / "word").write_text("hello")
    with service as running, Client(running.url, running.operator_token) as gavel:
        assert wait_until(lambda: len(gavel.cluster()["workers"]) == 3, 90)
        gavel.put_secret("TOKEN", "a-secret-value")
        code = gavel.store_code(project)
        job = gavel.submit(argv=["python", "train.py"], code=code, secrets=["TOKEN"])
        done = gavel.wait(job["id"], timeout_s=LIMIT_S)
        assert (done["state"], done["steps_done"]) == ("COMPLETED", 30), done["message"]
        assert gavel.logs(job["id"])[0].splitlines()[-1] == "*** hello"
        assert b"".join(gavel.read_file(job["id"], "result")) == b"done"
        (checkpoint, *_) = gavel.job_checkpoints(job["id"])["items"]
        assert b"".join(gavel.read_checkpoint(job["id"], checkpoint["name"])).startswith(checkpoint["name"].encode())
        assert (outputs / job["id"] / "result").exists()
