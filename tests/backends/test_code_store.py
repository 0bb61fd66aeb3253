"""The store of code versions: what is put in comes out as a job's own copy, and each piece is kept once."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends.code_copy import chunk_path, copy_code, tree_path
from gavel.backends.code_store import CodeStore, code_dir
from gavel.code_tree import CHUNK_BYTES, TreeFile, chunk_sizes, digest_of, packed, problem_of, too_large, unpacked
from gavel.errors import InvalidRequest, NotFound
from gavel.types import CodeVersion
from tests.backends.code import described, stored
from tests.conftest import IS_FULL

LIMIT_BYTES = 10 << 20
NAMES = st.text("abé.~ ", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.binary(max_size=9) | st.integers(0, 3).map(lambda count: b"x" * (count * CHUNK_BYTES + count))


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    return CodeStore(tmp_path, limit_bytes=LIMIT_BYTES, kept_s=3600)


@settings(max_examples=30 if IS_FULL else 10)
@given(files=st.dictionaries(PATHS, CONTENTS, max_size=5))
def test_a_copy_has_what_was_stored(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = {path: files[path] for path in files if not any(other.startswith(f"{path}/") for other in files)}
    folder = tmp_path_factory.mktemp("one")
    digest = stored(CodeStore(folder, limit_bytes=LIMIT_BYTES, kept_s=3600), whole)
    copy_code(str(folder / "code"), digest, str(folder / "copy"), str(folder))
    assert read(folder / "copy") == whole


def test_a_job_that_changes_its_copy_changes_nothing_else(store: CodeStore, tmp_path: Path) -> None:
    digest = stored(store, {"train.py": b"first"})
    copy_code(str(tmp_path / "code"), digest, str(tmp_path / "one"), str(tmp_path))
    with open(tmp_path / "one" / "train.py", "r+b") as file:
        file.write(b"other")
    # The job's next gang goes on with its own files.
    copy_code(str(tmp_path / "code"), digest, str(tmp_path / "one"), str(tmp_path))
    copy_code(str(tmp_path / "code"), digest, str(tmp_path / "two"), str(tmp_path))
    assert read(tmp_path / "one") == {"train.py": b"other"} and read(tmp_path / "two") == {"train.py": b"first"}


def test_links_and_programs_stay_what_they_are(store: CodeStore, tmp_path: Path) -> None:
    program = replace(described("run", b"#!/bin/sh\n"), is_executable=True)
    digest, _ = store.put([program, TreeFile(path="latest", target="run")])
    store.put_chunks(digest, packed([b"#!/bin/sh\n"]))
    copy_code(str(tmp_path / "code"), digest, str(tmp_path / "copy"), str(tmp_path))
    assert os.access(tmp_path / "copy" / "run", os.X_OK) and os.readlink(tmp_path / "copy" / "latest") == "run"


def test_a_change_is_all_that_is_missing(store: CodeStore) -> None:
    content = os.urandom(20 * CHUNK_BYTES)
    stored(store, {"data": content, "a.py": b"a"})
    changed = content[: 7 * CHUNK_BYTES] + bytes([content[7 * CHUNK_BYTES] ^ 1]) + content[7 * CHUNK_BYTES + 1 :]
    _, missing = store.put([described("data", changed), described("a.py", b"a")])
    assert missing == (digest_of(changed[7 * CHUNK_BYTES : 8 * CHUNK_BYTES]),)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ([TreeFile(path="/etc/passwd")], "does not lead below"),
        ([TreeFile(path="a/../../b")], "does not lead below"),
        ([TreeFile(path="a//b")], "does not lead below"),
        ([TreeFile(path="a\0b")], "does not lead below"),
        ([TreeFile(path="a", target="/etc"), TreeFile(path="a/b")], "no folder"),
        ([TreeFile(path="a"), TreeFile(path="a")], "twice"),
        ([TreeFile(path="a", size_bytes=1)], "0 chunks"),
        ([TreeFile(path="a", size_bytes=LIMIT_BYTES + 1, chunks=("0" * 64,) * 41)], "largest are a (10.5 MB)"),
    ],
)
def test_files_that_cannot_be_written_below_a_folder_are_refused(
    store: CodeStore, files: list[TreeFile], problem: str
) -> None:
    with pytest.raises(InvalidRequest, match="files") as refused:
        store.put(files)
    assert problem in str(refused.value)


def test_the_largest_folders_are_named() -> None:
    sizes = {"data/a/x": 5_000_000, "data/y": 4_000_000, "logs/z": 2_000_000, "train.py": 10, "b/c": 20}
    assert too_large(sizes, 20_000_000) == ""
    named = "11.0 MB are more than the 1.0 MB that the service takes; largest are data/ (9.0 MB), logs/ (2.0 MB), b/"
    assert too_large(sizes, 1_000_000).startswith(named)


def test_only_chunks_of_the_version_are_taken(store: CodeStore) -> None:
    digest, _ = store.put([described("a", b"a")])
    with pytest.raises(InvalidRequest, match="no part of it"):
        store.put_chunks(digest, packed([b"other"]))
    with pytest.raises(InvalidRequest, match="cut short"):
        store.put_chunks(digest, packed([b"a"])[:-1])
    with pytest.raises(InvalidRequest, match="1 chunks"):
        store.use(digest)
    with pytest.raises(InvalidRequest, match="store it first"):
        store.use("0" * 64)
    with pytest.raises(NotFound):
        store.put_chunks("0" * 64, b"")


def test_a_chunk_that_was_cut_short_is_asked_for_again(store: CodeStore, tmp_path: Path) -> None:
    digest = stored(store, {"a": b"whole"})
    path = Path(chunk_path(str(tmp_path / "code"), digest_of(b"whole")))
    path.write_bytes(b"who")
    with pytest.raises(OSError, match="cut short"):
        copy_code(str(tmp_path / "code"), digest, str(tmp_path / "copy"), str(tmp_path))
    assert not (tmp_path / "copy").exists()
    assert stored(store, {"a": b"whole"}) == digest
    copy_code(str(tmp_path / "code"), digest, str(tmp_path / "copy"), str(tmp_path))
    assert read(tmp_path / "copy") == {"a": b"whole"}


def test_what_nobody_uses_goes_after_its_time(store: CodeStore, tmp_path: Path) -> None:
    """1 three versions, two old ones, two jobs' copies, 2 an unfinished job keeps its own, 3 the rest goes."""
    old, in_use, new = (stored(store, {"shared": b"s", "own": name}) for name in (b"old", b"used", b"new"))
    for job_id in ("ended", "living"):
        (tmp_path / "work" / job_id / "code").mkdir(parents=True)
    long_ago_s = time.time() - 7200
    for path in tmp_path.rglob("*"):
        os.utime(path, (long_ago_s, long_ago_s))
    store.use(new)
    store.clear({"living": (in_use,)})
    assert [path.parent.name for path in (tmp_path / "work").glob("*/code")] == ["living"]
    with pytest.raises(NotFound):
        store.files(old)
    assert not Path(chunk_path(str(tmp_path / "code"), digest_of(b"old"))).exists()
    for digest in (in_use, new):
        store.use(digest)


def test_a_diff_stays_as_long_as_the_code_of_its_job(store: CodeStore, tmp_path: Path) -> None:
    digest, diff = stored(store, {"train.py": b"x"}), store.put_diff(b"+x\n" * CHUNK_BYTES, "ann")
    long_ago_s = time.time() - 7200
    for path in tmp_path.rglob("*"):
        os.utime(path, (long_ago_s, long_ago_s))
    store.clear({"living": CodeVersion(digest=digest, diff=diff).stored})
    assert store.diff(diff) == b"+x\n" * CHUNK_BYTES
    store.clear({})
    with pytest.raises(NotFound):
        store.diff(diff)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_packed_chunks_come_back(chunks: list[bytes]) -> None:
    assert list(unpacked(packed(chunks))) == chunks


def test_the_size_of_each_chunk_is_its_own() -> None:
    files = [described("a", b"x" * (CHUNK_BYTES + 7)), described("b", b"y")]
    assert list(chunk_sizes(files).values()) == [CHUNK_BYTES, 7, 1] and problem_of(files) == ""


def test_what_is_stored_is_on_the_disk_before_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    digest = stored(CodeStore(tmp_path, limit_bytes=LIMIT_BYTES, kept_s=1e6), {"a": b"code"})
    folder, written = str(code_dir(tmp_path)), [Path(each) for each in synced]
    for piece in (Path(tree_path(folder, digest)), Path(chunk_path(folder, digest_of(b"code")))):
        assert any(each.parent == piece.parent and piece.name in each.name for each in written), "its content"
        assert piece.parent in written, "its name"
        assert piece.parent.parent in written, "the name of its folder, which is new"


def test_the_folders_of_ended_jobs_go_after_their_time(store: CodeStore, tmp_path: Path) -> None:
    """1. Of four jobs one lives, one wrote to its log lately, one changed its folder. 2. Only the fourth one goes."""
    (tmp_path / "logs").mkdir()
    for job_id in ("ended", "living", "wrote", "changed"):
        (tmp_path / "work" / job_id).mkdir(parents=True)
        (tmp_path / "work" / job_id / "result").touch()
        (tmp_path / "logs" / f"{job_id}.log").touch()
    long_ago_s = time.time() - 7200
    for path in tmp_path.rglob("*"):
        os.utime(path, (long_ago_s, long_ago_s))
    (tmp_path / "logs" / "wrote.log").touch()
    (tmp_path / "work" / "changed" / "new").touch()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tmp_path / "work" / "link").symlink_to(outside)
    os.utime(tmp_path / "work" / "link", (long_ago_s, long_ago_s), follow_symlinks=False)
    os.utime(outside, (long_ago_s, long_ago_s))
    store.clear({"living": ()})
    assert {path.name for path in (tmp_path / "work").iterdir()} - {"link"} == {"living", "wrote", "changed"}
    assert (outside / "kept").exists(), "a link that a job made leads nowhere"


def test_a_user_s_versions_are_bounded_together_and_shared_chunks_count_once(tmp_path: Path) -> None:
    store = CodeStore(tmp_path, limit_bytes=LIMIT_BYTES, kept_s=3600.0, user_limit_bytes=2500)
    shared = b"s" * 2000
    versions = [[described("data", shared), described("own", bytes([n]) * 200)] for n in range(4)]
    digests = [store.put(files, "ann")[0] for files in versions[:2]]
    with pytest.raises(InvalidRequest, match=r"user ann would have 0\.0 MB .*user_code_bytes"):
        store.put([described("data", b"t" * 500)], "ann")
    assert store.put(versions[0], "ann")[0] == digests[0], "what is stored already may be submitted again"
    assert store.put([described("data", b"t" * 500)], "bob"), "another user has a limit of their own"
    for path in (tmp_path / "code" / "trees").glob("*.json"):
        path.unlink()
    assert store.put([described("data", b"t" * 500)], "ann"), "versions that were deleted count no more"
