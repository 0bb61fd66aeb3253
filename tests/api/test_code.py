"""The code of a job over REST: only what is missing is sent, and a job says which code it runs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gavel.backends.code_copy import tree_path
from gavel.client import Client, GavelApiError
from gavel.client.worktree import CodeTooLarge, Worktree
from gavel.code_tree import CHUNK_BYTES, CUT_LINE, digest_of, packed
from tests.api.conftest import Service, service

__all__ = ["service"]

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROGRAM = {"argv": ["python", "train.py"], "total_steps": 5}


@pytest.fixture
def ann(service: Service) -> Iterator[Client]:
    name, _ = service.user()
    with Client(service.url, service.token(name)) as client:
        yield client


def counted(client: Client) -> list[int]:
    """The sizes of the bodies that the client sends from now on."""
    sizes: list[int] = []

    def count(request: httpx.Request) -> None:
        sizes.append(len(request.content))

    client._http.event_hooks = {"request": [count]}
    return sizes


def write(folder: Path, name: str, content: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def test_a_job_says_which_code_it_runs(ann: Client, tmp_path: Path, service: Service) -> None:
    write(tmp_path, "train.py", b"print(1)")
    code = ann.store_code(tmp_path)
    job = ann.submit(**PROGRAM, workdir=str(tmp_path), code={**code, "commit": "a" * 40, "is_modified": True})
    assert job["code"] == {
        "digest": code["digest"],
        "commit": "a" * 40,
        "is_modified": True,
        "diff": "",
        "git_url": "",
        "git_ref": "",
    }
    spec = service.store.job(job["id"]).spec
    assert spec.code and (spec.code.digest, spec.code.commit) == (code["digest"], "a" * 40)
    write(tmp_path, "train.py", b"print(2)")
    assert ann.store_code(tmp_path)["digest"] != code["digest"]
    made = ann.submit_array({**PROGRAM, "code": code}, count=2)["items"]
    assert {each["code"]["digest"] for each in made if each["code"]} == {code["digest"]}


def changed(folder: Path, text: bytes) -> Worktree:
    """A folder whose code is said to differ from a commit by this text."""
    return Worktree(folder=folder, sizes={}, commit="c" * 40, diff=text)


def test_a_job_says_how_its_code_differs_from_the_commit(ann: Client, tmp_path: Path, service: Service) -> None:
    """1 the diff comes back, but not what is secret in it, nor is that on the disk; 2 others do not see it; 3 a job
    that is submitted again has it, 4 also after it was deleted: then without."""
    ann.put_secret("TOKEN", "a-long-secret")
    code = ann.store_code(changed(tmp_path, b"+key = 'a-long-secret'\n+\xff\n"))
    job = ann.submit(**PROGRAM, code=code)
    shown = {"commit": "c" * 40, "text": "+key = '***'\n+\ufffd\n", "is_cut": False}
    assert job["code"] == {**code, "git_url": "", "git_ref": ""} and ann.code_diff(job["id"]) == shown
    state_dir = service.settings.state_dir
    assert not [path for path in (state_dir / "code").rglob("*") if path.is_file() and b"a-long" in path.read_bytes()]
    with Client(service.url, service.token(service.user()[0])) as bob, pytest.raises(GavelApiError, match="no job"):
        bob.code_diff(job["id"])
    again = ann.resubmit(job["id"])
    assert ann.code_diff(again["id"]) == shown
    Path(tree_path(str(state_dir / "code"), code["diff"])).unlink()
    with pytest.raises(GavelApiError, match=r"deleted 30 days after the code's last use \(keep_code_s\)"):
        ann.code_diff(job["id"])
    assert (ann.resubmit(job["id"])["code"] or {}).get("diff") == ""


def test_code_without_differences_has_none_and_a_diff_that_is_none_is_refused(ann: Client, tmp_path: Path) -> None:
    write(tmp_path, "train.py", b"print(1)")
    code = ann.store_code(tmp_path)
    assert ann.code_diff(ann.submit(**PROGRAM, code=code)["id"]) == {"commit": "", "text": "", "is_cut": False}
    for diff, message in ((code["digest"], "is no diff"), ("0" * 64, "store it first")):
        with pytest.raises(GavelApiError, match=message) as refused:
            ann.submit(**PROGRAM, code={**code, "diff": diff})
        assert refused.value.field == "code.diff"
    with pytest.raises(GavelApiError, match="at most 1,000,000 bytes"):
        ann.store_code(changed(tmp_path, b"x" * 2_000_000))
    assert ann.code_diff(ann.submit(**PROGRAM, code=ann.store_code(changed(tmp_path, b"x\n" + CUT_LINE)))["id"])[
        "is_cut"
    ]
    for job, message in (
        (ann.submit(**PROGRAM), "of which no version is stored"),
        (ann.submit(**PROGRAM, code={**code, "is_modified": True}), "did not send how"),
    ):
        with pytest.raises(GavelApiError, match=message):
            ann.code_diff(job["id"])


def test_only_the_chunks_that_changed_are_sent(ann: Client, tmp_path: Path) -> None:
    """1 four megabytes, of which one chunk occurs twice, 2 the same again sends none, 3 a change sends its chunk."""
    content = bytearray(b"".join(bytes([index]) * CHUNK_BYTES for index in range(16)))
    write(tmp_path, "data/large", bytes(content))
    write(tmp_path, "copy", bytes(content[:CHUNK_BYTES]))
    write(tmp_path, "train.py", b"print(1)")
    sizes = counted(ann)
    first = ann.store_code(tmp_path)
    assert 16 * CHUNK_BYTES < sum(sizes) < 16.1 * CHUNK_BYTES
    sizes.clear()
    assert ann.store_code(tmp_path) == first
    assert sum(sizes) < 10_000
    content[5 * CHUNK_BYTES] ^= 1
    write(tmp_path, "data/large", bytes(content))
    sizes.clear()
    assert ann.store_code(tmp_path)["digest"] != first["digest"]
    assert CHUNK_BYTES < sum(sizes) < CHUNK_BYTES + 10_000


def test_an_upload_that_was_cut_off_goes_on_where_it_was(ann: Client, service: Service) -> None:
    _, client = service.user()
    contents = [b"one", b"two"]
    files = [{"path": str(index), "size_bytes": 3, "chunks": [digest_of(each)]} for index, each in enumerate(contents)]
    put = client.post("/v1/code-versions", json={"files": files}).json()
    path = f"/v1/code-versions/{put['digest']}/chunks"
    headers = {"Content-Type": "application/octet-stream"}
    assert client.put(path, content=packed([b"one"]), headers=headers).json()["missing"] == [digest_of(b"two")]
    incomplete = client.post("/v1/jobs", json=PROGRAM | {"code": {"digest": put["digest"]}})
    assert incomplete.status_code == 422 and "1 chunks" in incomplete.json()["detail"]
    again = client.post("/v1/code-versions", json={"files": files}).json()
    assert again == put | {"missing": [digest_of(b"two")]}
    assert client.put(path, content=packed([b"two"]), headers=headers).json()["missing"] == []
    assert client.post("/v1/jobs", json=PROGRAM | {"code": {"digest": put["digest"]}}).status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"files": [{"path": "../x"}]}, "files"),
        ({"files": [{"path": "x", "size_bytes": 9}]}, "files"),
        ({"files": [{"path": "x", "mode": 7}]}, "body.files.0.mode"),
        ({"files": [{"path": "x", "chunks": ["../../etc/passwd"]}]}, "body.files.0.chunks.0"),
    ],
)
def test_files_that_cannot_be_stored_are_refused(service: Service, body: dict[str, Any], field: str) -> None:
    _, client = service.user()
    refused = client.post("/v1/code-versions", json=body)
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == field


def test_code_that_is_not_stored_is_refused(service: Service) -> None:
    _, client = service.user()
    for path in ("/v1/jobs", "/v1/jobs/batch"):
        job = PROGRAM | {"code": {"digest": "0" * 64}}
        refused = client.post(path, json=job if path == "/v1/jobs" else {"jobs": [job]})
        assert refused.status_code == 422 and "store it first" in refused.json()["detail"]
    kind = next(iter(client.get("/v1/catalogue").json()["items"]))["name"]
    refused = client.post("/v1/jobs", json={"kind": kind, "total_steps": 1, "code": {"digest": "0" * 64}})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "code"


def test_a_folder_larger_than_the_service_takes_is_refused_before_it_is_sent(start: Any, tmp_path: Path) -> None:
    small = start(code_bytes=1000)
    folder = tmp_path / "project"
    write(folder, "data/large", b"x" * 5000)
    write(folder, "train.py", b"y")
    with Client(small.url, small.token(small.user()[0])) as client:
        sizes = counted(client)
        with pytest.raises(CodeTooLarge, match=r"largest are data/ \(0\.0 MB\)"):
            client.store_code(folder)
        assert sum(sizes) == 0
    _, client = small.user()
    files = [{"path": "data/large", "size_bytes": 5000, "chunks": ["0" * 64]}]
    assert "largest are data/" in client.post("/v1/code-versions", json={"files": files}).json()["detail"]


def test_code_is_taken_for_nodes_that_lack_the_services_files(start: Any, tmp_path: Path) -> None:
    """And the paths of the caller's machine are not taken for theirs."""
    on_ray = start(backend="ray")
    write(tmp_path, "train.py", b"print(1)")
    with Client(on_ray.url, on_ray.token(on_ray.user()[0])) as client:
        assert client.code_limits()["machine"] == ""
        code = client.store_code(tmp_path)
        assert client.submit(**PROGRAM, code=code)["code"]["digest"] == code["digest"]


@pytest.mark.skipif(not FULL, reason="GAVEL_TEST_PROFILE=full: writes 100 MB")
def test_of_a_hundred_megabytes_a_change_of_one_sends_less_than_two(ann: Client, tmp_path: Path) -> None:
    """1 files of all sizes, 2 a megabyte of changes, in two places of a large file and in some small ones."""
    for index in range(60):
        write(tmp_path, f"large/{index}", os.urandom(1_500_000))
    for index in range(1000):
        write(tmp_path, f"small/{index}", os.urandom(10_000))
    sizes = counted(ann)
    ann.store_code(tmp_path)
    assert sum(sizes) > 100e6
    whole = bytearray((tmp_path / "large" / "7").read_bytes())
    whole[100_000:500_000], whole[1_000_000:1_400_000] = os.urandom(400_000), os.urandom(400_000)
    write(tmp_path, "large/7", bytes(whole))
    for index in range(20):
        write(tmp_path, f"small/{index}", os.urandom(10_000))
    sizes.clear()
    ann.store_code(tmp_path)
    assert 1e6 < sum(sizes) < 2e6
