"""Files of a state folder that several processes share: the address of a service, and the secret of jobs' tokens."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from gavel.clock import SystemClock
from gavel.daemon.keys import Address, JobTokens, write_private
from gavel.store.sql import SqlStore
from gavel.types import JobSpec
from tests.builders import a_job


def named(folder: Path) -> str:
    return str(json.loads((folder / "service.json").read_text())["url"])


def test_commands_find_a_living_service_and_rather_the_one_that_leads(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        write_private(tmp_path / "service.json", json.dumps({"url": "http://other", "pid": other.pid}))
        mine = Address(tmp_path, "http://mine")
        mine.offer()
        assert named(tmp_path) == "http://other"
        mine.withdraw()
        assert named(tmp_path) == "http://other", "it is the other's to take away"
        mine.claim()
        assert named(tmp_path) == "http://mine"
        write_private(tmp_path / "service.json", json.dumps({"url": "http://other", "pid": other.pid}))
        other.kill()
        other.wait()
    mine.offer()
    assert named(tmp_path) == "http://mine"
    mine.withdraw()
    assert not (tmp_path / "service.json").exists()


def test_an_address_is_written_only_when_the_token_beside_it_is(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        write_private(tmp_path / "service.json", json.dumps({"url": "http://other", "pid": other.pid}))
        mine = Address(tmp_path, "http://mine")
        mine.claim()  # the scheduler leads before the main process has written the operator's token
        assert named(tmp_path) == "http://other"
        mine.offer()
        assert named(tmp_path) == "http://mine"
        other.kill()


def test_an_address_that_was_cut_short_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "service.json").write_text('{"url": "http')
    Address(tmp_path, "http://mine").offer()
    assert named(tmp_path) == "http://mine"


def test_of_two_that_write_a_secret_at_once_the_first_has_written_it(tmp_path: Path) -> None:
    for text in ("first", "second"):
        write_private(tmp_path / "secret", text, replace=False)
    assert (tmp_path / "secret").read_text() == "first" and os.listdir(tmp_path) == ["secret"]


def test_a_leader_with_a_folder_of_its_own_gives_jobs_that_run_already_a_token_that_is_known(tmp_path: Path) -> None:
    store, clock = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}"), SystemClock()
    spec: JobSpec = a_job().spec
    job = store.submit(spec, key=None, body_hash="", now_s=1.0).job
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        token = JobTokens(store, tmp_path / folder, clock)([a_job(id=job.id, attempt=3)])[job.id]
        holder = store.identify(sha256(token.encode()).hexdigest())
        assert holder is not None and holder.job_id == job.id
    store.close()
