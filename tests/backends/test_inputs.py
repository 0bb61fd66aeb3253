"""The inputs of jobs: fetched once for each version, kept by leases that end, never half there, within a bound."""

import json
import os
import re
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gavel.backends.harness import exit_of, gang
from gavel.backends.input_cache import CachedInput, Room
from gavel.backends.input_fetch import Fetch, time_limit
from gavel.backends.input_sources import FilesystemSource, open_source, source_problem
from gavel.backends.inputs import file_name, local_path
from gavel.backends.preparation import PreparationFailed, locked
from gavel.types import GangOutcome
from tests.backends.clusters import LocalHarness, eventually, script

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
SHOW = 'cat "$GAVEL_DATA_TRAIN"'


class Server:
    """A real HTTP server with one file. `gate` holds the second half of what it sends back."""

    def __init__(self) -> None:
        self.content, self.tag, self.status, self.length = b"0123456789", '"1"', 200, -1
        self.redirect = self.url = ""
        self.gate = Event()
        self.gate.set()
        self.sent = 0  # how often all of the file went out
        self.asked: list[str] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        request.send_response(302 if self.redirect else self.status)
        if self.redirect:
            request.send_header("Location", self.redirect)
        if self.tag:
            request.send_header("ETag", self.tag)
        if self.length:
            request.send_header("Content-Length", str(len(self.content) if self.length < 0 else self.length))
        request.end_headers()
        half = len(self.content) // 2
        request.wfile.write(self.content[:half])
        request.wfile.flush()
        self.gate.wait(30)
        request.wfile.write(self.content[half:])
        self.sent += 1


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, *_: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    served.url = f"http://127.0.0.1:{http.server_port}/sets/train.txt?version=1"
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield served
    served.gate.set()
    http.shutdown()
    http.server_close()
    thread.join()


def reading(harness: LocalHarness, source: str, job_id: str = "j1", **over: object) -> None:
    """Launch a gang that prints its input `train`."""
    harness.backend.execute(script(harness, SHOW, job_id=job_id, data={"train": source}, **over))  # type: ignore[arg-type]


def fetched_parts(harness: LocalHarness) -> list[Path]:
    return list((harness.folder / "inputs").glob("*/*.part/train.txt"))


def test_an_input_is_fetched_once_for_each_version(harness: LocalHarness, server: Server) -> None:
    """1 a job reads it, 2 the next job has the same file, 3 what has changed is fetched anew."""
    for number, (content, tag) in enumerate([(b"0123456789", '"1"')] * 2 + [(b"other", '"2"')], start=1):
        server.content, server.tag = content, tag
        reading(harness, server.url, f"j{number}")
        end = exit_of(harness, f"j{number}")
        assert end.outcome is GangOutcome.EXITED and end.log_tail.endswith(content.decode()), end
    kept = list((harness.folder / "inputs").glob("*/*/train.txt"))
    assert sorted(path.read_text() for path in kept) == ["0123456789", "other"]
    assert {oct(path.stat().st_mode & 0o777) for path in kept} == {"0o400"}
    assert "version=1" not in end.log_tail, "a query may be a signature: the log does without"


def test_without_a_validator_each_job_fetches_it_anew_but_keeps_it(harness: LocalHarness, server: Server) -> None:
    """1 a server that says neither ETag nor time: its content may have changed, 2 a job reads one version always."""
    server.tag = ""
    reading(harness, server.url)
    exit_of(harness, "j1")
    server.content = b"9876543210"
    reading(harness, server.url, generation=2, resource="gavel/gang-j1-2")
    harness.backend.execute(gang(harness, "j1", generation=2)[:1])
    assert exit_of(harness, "j1", 2).log_tail == "0123456789"
    reading(harness, server.url, "j2")
    assert exit_of(harness, "j2").log_tail.endswith("9876543210")


def test_one_of_two_gangs_fetches_and_both_wait(harness: LocalHarness, server: Server) -> None:
    """1 two gangs, 2 the lease of one ends, and the service, but not the fetch, 3 both jobs have it."""
    server.gate.clear()
    reading(harness, server.url, lease_expires_at_s=harness.now_s() + harness.short_s)
    reading(harness, server.url, "j2", worker_ids=("a-1",))
    eventually(lambda: bool(fetched_parts(harness)))
    seen = harness.wait_until(lambda view: len(view.gangs) == 2)
    assert all(each.started_at_s is None for each in seen.gangs)
    end = exit_of(harness, "j1")
    assert (end.outcome, end.message) == (
        GangOutcome.PREEMPTED,
        "its lease ended while its input was fetched, which goes on",
    )
    harness.crash()
    harness.recover()
    server.gate.set()
    reading(harness, server.url, generation=2, resource="gavel/gang-j1-2")
    harness.backend.execute(gang(harness, "j1", generation=2)[:1])
    assert exit_of(harness, "j1", 2).log_tail.endswith("0123456789")
    assert exit_of(harness, "j2").log_tail.endswith("0123456789")
    assert len(server.asked) == 3, "looked up, fetched, looked up again; by one process"


def test_no_variable_of_a_job_makes_a_driver_run_a_program(harness: LocalHarness, server: Server) -> None:
    """A fetch has no name of a file, and no home that the job writes; a proxy would lead to any host."""
    keys = {"AWS_ACCESS_KEY_ID": "key"}
    files = {name: "/tmp/job" for name in ("AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "FSSPEC_CONFIG_DIR")}
    others = {"AWS_PROFILE": "program", "NO_PROXY": "*", "https_proxy": "http://127.0.0.1:9"}
    reading(harness, server.url, env=keys | files | others)
    exit_of(harness, "j1")
    [launch] = harness.folder.glob("gangs/j1/1/launch.json")
    env = json.loads(launch.read_text())["data"]["env"]
    assert env.items() >= keys.items() and not env.keys() & (files.keys() | others.keys()), env


def test_a_fetch_goes_by_no_proxy_but_that_of_the_service(
    harness: LocalHarness, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 a proxy of the job's is not asked, as it would lead to hosts that are not allowed, 2 the operator's is."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    proxy, source = server.url.partition("/sets")[0], "http://sets.invalid/train.txt"
    over = {"data_hosts": ("sets.invalid",)}
    harness.crash()
    harness.backend = harness.open(preparation=harness.preparation(**over))
    reading(harness, source, env=dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), proxy))
    assert exit_of(harness, "j1").outcome is GangOutcome.NOT_STARTED and not server.asked
    monkeypatch.setenv("http_proxy", proxy)
    reading(harness, source, "j2")
    assert exit_of(harness, "j2").log_tail.endswith("0123456789")
    assert set(server.asked) == {source}


@pytest.mark.parametrize(
    ("name", "value", "host"),
    [
        ("AWS_ENDPOINT_URL", "http://10.0.0.1:9000/", "10.0.0.1"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;BlobEndpoint=https://10.0.0.1/a", "10.0.0.1"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;blobendpoint = 10.0.0.1:1/a", "10.0.0.1"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;EndpointSuffix=evil.net", "evil.net"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=10.0.0.1/", "10.0.0.1/"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "10.0.0.1/x?", "10.0.0.1/x?"),
    ],
)
def test_the_address_of_a_store_has_to_be_an_allowed_host(
    name: str, value: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with (
        pytest.raises(PreparationFailed, match=re.escape(f"{name} names {host}, from where")),
        open_source("s3://bucket/a", ["bucket", "*.example.org"]),
    ):
        pass


def test_a_fetch_that_fails_ends_the_job_and_is_not_kept(harness: LocalHarness, server: Server) -> None:
    """1 a refusal, 2 a file that is cut short, 3 a later job has it."""
    server.status = 404
    reading(harness, server.url)
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED
    assert end.message == "its input train could not be fetched: the server answered 404 Not Found"
    server.status, server.length = 200, 1000
    reading(harness, server.url, "j2")
    assert "could not be fetched: 127.0.0.1" in exit_of(harness, "j2").message
    server.length = -1
    reading(harness, server.url, "j3")
    assert exit_of(harness, "j3").log_tail.endswith("0123456789")


def test_a_fetch_that_was_cut_off_never_counts(harness: LocalHarness, server: Server) -> None:
    """1 its process is killed, 2 the gang is lost, which is no failure of the job, 3 the next one fetches anew."""
    server.gate.clear()
    reading(harness, server.url)
    eventually(lambda: bool(fetched_parts(harness)))
    mark = f"{harness.folder}/gangs/j1/1\0train".encode()
    (process,) = (
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if mark in each.read_bytes() and b"input_fetch.py" in each.read_bytes()
    )
    os.kill(process, signal.SIGKILL)
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.LOST
    assert end.message == "its input was lost: the fetch of its input train was cut off"
    server.gate.set()
    reading(harness, server.url, "j2")
    assert exit_of(harness, "j2").log_tail.endswith("0123456789")
    assert not fetched_parts(harness)


def test_what_has_no_room_ends_the_job_with_the_setting(harness: LocalHarness, server: Server) -> None:
    """1 a size that the server says, 2 one that only shows while it comes, 3 a host that is not allowed."""
    for number, (length, over, says) in enumerate(
        [
            (-1, {"data_cache_bytes": 9}, "it has 0.0 MB or more; a node keeps 0.0 MB (data_cache_bytes)"),
            (0, {"data_cache_bytes": 9}, "(data_cache_bytes)"),
            (-1, {"data_hosts": ("*.example",)}, "the service fetches nothing from 127.0.0.1 (data_hosts)"),
        ]
    ):
        server.length = length
        harness.crash()
        harness.backend = harness.open(preparation=harness.preparation(**over))
        reading(harness, server.url, f"j{number}")
        end = exit_of(harness, f"j{number}")
        assert end.outcome is GangOutcome.NOT_STARTED and says in end.message, end


def test_a_path_is_used_where_it_is(harness: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "my set").write_text("here")
    for number, source in enumerate((str(tmp_path / "my set"), (tmp_path / "my set").as_uri())):
        reading(harness, source, f"j{number}")
        assert exit_of(harness, f"j{number}").log_tail == "here"
    reading(harness, "/no/such/set", "j3")
    end = exit_of(harness, "j3")
    assert (end.outcome, end.message) == (
        GangOutcome.NOT_STARTED,
        "its input train: there is no /no/such/set on node here; correct --data train=PATH",
    )


def test_a_server_may_not_lead_to_a_host_that_is_not_allowed(server: Server) -> None:
    server.redirect = "http://localhost:1/secret"
    with (
        open_source(server.url, ("127.0.0.1",)) as source,
        pytest.raises(PreparationFailed, match="leads to localhost"),
    ):
        source.files()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("sets/train", "neither an absolute path nor a URL"),
        ("gopher://there/x", "neither an absolute path nor a URL"),
        ("file://there/x", "neither an absolute path nor a URL"),
        ("zip://x::http://there/y", "neither an absolute path nor a URL"),
        ("https://", "name a host"),
        ("https://ann:password@there/x", "give these as secrets"),
        ("https://169.254.169.254/x", "fetches nothing from 169.254.169.254 (data_hosts)"),
        ("s3://there.example/x", "needs the package s3fs on the nodes"),
    ],
)
def test_what_cannot_be_an_input_is_refused_with_what_to_write(source: str, says: str) -> None:
    assert says in source_problem(source, ("*.example", "there"))
    assert "password@" not in source_problem(source, ("*.example", "there"))


def test_the_name_of_a_file_leads_nowhere_else() -> None:
    names = [file_name(f"https://there{path}") for path in ("/a/b.tar.gz?x=/y", "/a/%2e%2e", "/", "/a/b%2Fc", "/..")]
    assert names == ["b.tar.gz", "content", "content", "b_c", "content"]
    assert local_path("file:///a%20b") == "/a b"


def fetched(root: Path, url: str, limit_bytes: int) -> Path:
    """Fetch with a driver of fsspec, and return the place."""
    cached = CachedInput(str(root), "ann", url)
    version = Fetch(FilesystemSource(url), cached, Room(str(root), limit_bytes), file_name(url), "j1").run()
    return Path(cached.place(version), file_name(url))


def test_a_folder_comes_whole_by_a_driver_of_fsspec(tmp_path: Path) -> None:
    (tmp_path / "set" / "deep").mkdir(parents=True)
    (tmp_path / "set" / "a.txt").write_text("a")
    (tmp_path / "set" / "deep" / "b.txt").write_text("b")
    root = tmp_path / "inputs"
    root.mkdir()
    place = fetched(root, f"file://{tmp_path}/set", 100)
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*.txt")) == ["a.txt", "deep/b.txt"]
    assert fetched(root, f"file://{tmp_path}/set", 100) == place
    (tmp_path / "set" / "a.txt").write_text("another")
    assert fetched(root, f"file://{tmp_path}/set", 100) != place
    with pytest.raises(FileNotFoundError):
        fetched(root, f"file://{tmp_path}/none", 100)


def test_a_fetch_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError, match="data_limit_s"), time_limit(0.05):
        Event().wait(30)


class CacheStates(RuleBasedStateMachine):
    """Fetches, gangs that come and go, and fetches that are cut off, in any order."""

    limit_bytes = 100

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.root = self.folder.name
        self.room = Room(self.root, self.limit_bytes)
        self.held: dict[str, int] = {}
        self.number = 0

    @rule(url=st.sampled_from("abc"), size=st.integers(1, 120), is_cut_off=st.booleans())
    def fetch(self, url: str, size: int, is_cut_off: bool) -> None:
        self.number += 1
        cached, version = CachedInput(self.root, "ann", url), f"{self.number:032}"
        in_use = sum(Path(path, "x").stat().st_size for path in self.held)
        with locked(cached.folder):
            part = cached.begin(version)
            try:
                self.room.reserve(cached.place(version), size)
            except PreparationFailed:
                assert in_use + size > self.limit_bytes
                return
            assert in_use + size <= self.limit_bytes
            Path(part, "x").write_bytes(bytes(size))
            if not is_cut_off:
                cached.finish(version)
        held = cached.hold(version)
        assert (held is None) == is_cut_off
        if held is not None:
            self.held[cached.place(version)] = held

    @rule(index=st.integers(0, 10))
    def end_of_a_gang(self, index: int) -> None:
        if self.held:
            os.close(self.held.pop(sorted(self.held)[index % len(self.held)]))

    @invariant()
    def what_gangs_read_is_there_and_all_is_within_the_bound(self) -> None:
        assert all(Path(path, "x").is_file() for path in self.held)
        whole = [path for path in Path(self.root).glob("*/*/x") if path.parent.suffix == ""]
        assert sum(path.stat().st_size for path in whole) <= self.limit_bytes

    def teardown(self) -> None:
        for held in self.held.values():
            os.close(held)
        self.folder.cleanup()


TestCacheStates = CacheStates.TestCase
TestCacheStates.settings = settings(max_examples=300 if IS_FULL else 15, stateful_step_count=20)
