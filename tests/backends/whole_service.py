"""What the whole service does over REST on a cluster of one node with three workers, whatever the cluster is."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from gavel_runtime.terminal_frames import TYPED, Frames, frame

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


def is_reached_by_its_user(service: ServiceProcess, free_port: int) -> None:
    """1 a session with a server and a shell runs on a node, 2 its user reaches the server, 3 and the shell twice,
    4 a port of its node that is another's is refused, and so is everything for somebody else, 5 it ends unused."""
    with service as running, Client(running.url, running.operator_token) as operator:
        assert wait_until(lambda: len(operator.cluster()["workers"]) == 3, 90)
        operator.put_user("ann", tiers=["default"])
        operator.put_user("bob", tiers=["default"])
        ann, bob = (operator.create_token(name) for name in ("ann", "bob"))
        command = f"python -m gavel_runtime.terminal & exec python -m http.server {free_port} --bind 127.0.0.1"
        with Client(running.url, ann) as gavel:
            job = gavel.submit(argv=["sh", "-c", command], mode="interactive", longest_s=900, idle_s=60)["id"]
            opened = partial(connect, additional_headers={"Authorization": f"Bearer {ann}"}, proxy=None)
            base = f"{running.url.replace('http', 'ws', 1)}/v1/jobs/{job}"
            assert wait_until(lambda: is_open(opened, f"{base}/ports/{free_port}"), LIMIT_S), gavel.job(job)
            with opened(f"{base}/ports/{free_port}") as there:
                there.send(b"GET / HTTP/1.0\r\n\r\n")
                assert b"200 OK" in there.recv(timeout=60)
            assert wait_until(lambda: is_open(opened, f"{base}/terminal"), LIMIT_S)
            for typed, seen in (
                (b"seen=$((6 * 7)); echo it is $seen\n", b"it is 42\r\n"),
                (b"echo $seen\n", b"42\r\n"),
            ):
                with opened(f"{base}/terminal") as there:
                    there.send(frame(TYPED, typed))
                    printed = b""
                    while seen not in printed:
                        printed += b"".join(payload for _, payload in Frames().of(there.recv(timeout=60)))
            assert status_of(opened, f"{base}/ports/{running.url.rpartition(':')[2]}") == 409  # the service's own
            foreign = partial(connect, additional_headers={"Authorization": f"Bearer {bob}"}, proxy=None)
            assert [status_of(foreign, f"{base}/{each}") for each in (f"ports/{free_port}", "terminal")] == [404] * 2
            ended = gavel.wait(job, timeout_s=LIMIT_S)
            assert (ended["state"], "Nobody was connected" in ended["message"]) == ("COMPLETED", True), ended["message"]
    assert not running.processes_left()


def status_of(opened: Callable[[str], ClientConnection], address: str) -> int:
    """How the request for a connection is answered; 101: it is made."""
    try:
        opened(address).close()
    except InvalidStatus as refused:
        return refused.response.status_code
    return 101


def is_open(opened: Callable[[str], ClientConnection], address: str) -> bool:
    return status_of(opened, address) == 101
