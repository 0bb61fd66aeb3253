"""Users of jobs under the real service: each has a Unix user of its own, and all that a job leaves is reached."""

import os
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gavel.backends.sandbox import bubblewrap
from gavel.client import Client, GavelApiError
from gavel.config import Settings
from gavel.daemon.service import serve
from tests.e2e.processes import Member

UIDS = "2000001-2000002"
PROGRAM = """
import os
from pathlib import Path
from gavel_runtime import job

def save(path):
    (path / "weights").write_text("weights")

def restore(path):
    print("restored", (path / "weights").read_text())

for step in job.steps(total=3, checkpoint=save, restore=restore):
    Path(os.environ["GAVEL_OUTPUT_DIR"], "result").write_text("result")
print("ran as", os.getuid())
"""
JOB = {"argv": ["python", "-c", PROGRAM], "total_steps": 3}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or bool(bubblewrap().problem), reason="needs root, to be other users, and bubblewrap"
)


@pytest.fixture
def member() -> Iterator[Member]:
    """A service whose state folder others may reach, with uids for two users."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        settings = {"GAVEL_JOB_USERS": UIDS, "GAVEL_ROUND_DURATION_S": "2", "GAVEL_CPU_WORKERS": "2"}
        with Member(Path(name) / "state", settings) as made:
            yield made


@pytest.mark.full
def test_each_user_has_a_unix_user_until_there_are_no_more(member: Member) -> None:
    """1 ann's job trains, and a second one goes on from it, 2 its files are read, 3 bob has another uid, 4 eve none,
    5 a purge leaves nothing."""
    with ExitStack() as stack:
        operator = stack.enter_context(member.client())
        ann, bob, eve = (stack.enter_context(of_user(operator, member, name)) for name in ("ann", "bob", "eve"))
        first = ann.submit(**JOB)["id"]
        assert ann.wait(first, 60)["state"] == "COMPLETED", ann.logs(first)
        assert "ran as 2000001" in ann.logs(first)[0]
        again = ann.resubmit(first, from_checkpoint=True, total_steps=6)["id"]
        assert ann.wait(again, 60)["state"] == "COMPLETED", ann.logs(again)
        assert "restored weights" in ann.logs(again)[0] and "ran as 2000001" in ann.logs(again)[0]
        assert b"".join(ann.read_file(first, "result")) == b"result"
        newest = ann.job_checkpoints(first)["items"][0]["name"]
        assert b"weights" in b"".join(ann.read_checkpoint(first, newest))
        assert bob.wait(bob.submit(**JOB)["id"], 60)["state"] == "COMPLETED"
        with pytest.raises(GavelApiError, match="eve has no Unix user for its jobs yet, and all 2 uids of job_users"):
            eve.submit(**JOB)
        ann.purge(again)
        ann.purge(first)
        assert not [path for path in member.state_dir.glob(f"*/{first}*") if path.parent.name != "gangs"]
    with sqlite3.connect(member.state_dir / "gavel.db") as database:
        assert database.execute("SELECT user_name, uid FROM job_users").fetchall() == [
            ("ann", 2000001),
            ("bob", 2000002),
        ]
    assert {path.name for path in member.state_dir.iterdir() if path.is_file() and path.stat().st_mode & 0o077} == set()


def of_user(operator: Client, member: Member, name: str) -> Client:
    operator.put_user(name, ["default"])
    return Client(member.url, operator.create_token(name))


def test_a_service_that_is_not_root_says_why_it_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert serve(Settings(state_dir=tmp_path / "state", job_users=UIDS), announced.append) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert announced == [
        f"gavel could not start: job_users = {UIDS} needs root, which alone can start programs as other users, and "
        "this is uid 1000: run it as root, or remove job_users from the settings"
    ]
