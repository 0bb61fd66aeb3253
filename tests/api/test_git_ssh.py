"""Code that the service fetches over ssh, from a real sshd on this machine."""

import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gavel.client import Client, GavelApiError
from tests.api.conftest import Service, serve, wait_until
from tests.client.test_worktree import git, write
from tests.ssh_server import WITH_SSHD, SshServer, make_key, ssh_server

pytestmark = WITH_SSHD
LIMIT_S = 10.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sshd: SshServer) -> Iterator[Service]:
    """A service that trusts the server of ssh under one of its addresses."""
    folder = tmp_path_factory.mktemp("service")
    yield from serve(folder, git_known_hosts=str(sshd.known_hosts), git_limit_s=LIMIT_S)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    git(folder, "init", "-q", "-b", "main")
    write(folder, train_py="print(1)")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def ann(served: Service) -> Iterator[Client]:
    with Client(served.url, served.token(served.user()[0])) as client:
        yield client


def refusal(client: Client, url: str, key: str = "") -> GavelApiError:
    """What the service answers to a fetch with a key, if one is given."""
    if key:
        client.put_secret("GIT_SSH_KEY", key)
    with pytest.raises(GavelApiError) as refused:
        client.fetch_code(url, secrets=["GIT_SSH_KEY"] if key else [])
    return refused.value


def test_a_private_repository_is_fetched_with_the_key_that_is_a_secret(
    ann: Client, served: Service, sshd: SshServer, work: Path
) -> None:
    """1 a branch and a commit, 2 also with the line ends of Windows, 3 the key stands nowhere but among secrets."""
    ann.put_secret("GIT_SSH_KEY", sshd.key)
    commit = git(work, "rev-parse", "main")
    code = ann.fetch_code(sshd.url(work), "main", secrets=["GIT_SSH_KEY"], script="train.py")
    assert (code["commit"], code["git_url"]) == (commit, sshd.url(work))
    ann.put_secret("GIT_SSH_KEY", sshd.key.replace("\n", "\r\n"))
    assert ann.fetch_code(sshd.url(work), commit, secrets=["GIT_SSH_KEY"])["digest"] == code["digest"]
    secret = sshd.key.splitlines()[1].encode()
    kept = [each for each in served.settings.state_dir.rglob("*") if each.is_file() and "secret" not in str(each)]
    assert not [each for each in kept if secret in each.read_bytes()]


def test_a_host_without_a_key_that_the_operator_added_is_not_trusted(ann: Client, sshd: SshServer, work: Path) -> None:
    refused = refusal(ann, sshd.url(work, "127.0.0.2"), sshd.key)
    assert refused.field == "git_url"
    assert "Host key verification failed" in refused.detail
    assert f"for its key, and adds it to {sshd.known_hosts} (git_known_hosts)" in refused.detail


def test_a_host_with_another_key_than_before_is_not_trusted(ann: Client, sshd: SshServer, work: Path) -> None:
    refused = refusal(ann, sshd.url(work, "localhost"), sshd.key)
    assert "has changed" in refused.detail
    assert f"replaces the old one in {sshd.known_hosts} (git_known_hosts)" in refused.detail
    assert "ssh-keygen" not in refused.detail, "nobody is asked to remove a key unseen"


def test_without_the_right_key_the_refusal_says_what_to_do(
    ann: Client, sshd: SshServer, work: Path, tmp_path: Path
) -> None:
    """1 without a key, 2 with another one, 3 with one that is cut off, 4 with one that has a passphrase."""
    url = sshd.url(work)
    assert "Permission denied" in (message := refusal(ann, url).detail) and "--secret GIT_SSH_KEY" in message
    message = refusal(ann, url, make_key(tmp_path / "other")).detail
    assert "Permission denied" in message and "does not take the key in GIT_SSH_KEY" in message
    message = refusal(ann, url, sshd.key[:100]).detail
    assert "GIT_SSH_KEY has no private key" in message and "/tmp" not in message
    locked = refusal(ann, url, make_key(tmp_path / "locked", "passphrase"))
    assert locked.field == "secrets" and "without a passphrase" in locked.detail


def test_what_ssh_cannot_reach_is_refused_with_its_words(ann: Client, sshd: SshServer, work: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = sshd.url(work).replace(f":{sshd.port}", f":{free.getsockname()[1]}")
    assert "Connection refused" in refusal(ann, closed, sshd.key).detail
    message = refusal(ann, sshd.url(work / "gone"), sshd.key).detail
    assert "does not appear to be a git repository" in message and "Please make sure" not in message


@pytest.mark.full
def test_a_host_that_does_not_answer_is_not_waited_for(start: object, work: Path) -> None:
    """Its limit ends git, and the ssh that git has started."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ssh://git@127.0.0.1:{silent.getsockname()[1]}{work}"
        service: Service = start(git_limit_s=1.0)  # type: ignore[operator]
        with Client(service.url, service.token(service.user()[0])) as client:
            assert "it took longer than 1 s (git_limit_s)" in refusal(client, url).detail
        port = str(silent.getsockname()[1])
        wait_until(lambda: not any(port in _arguments(each) for each in psutil.process_iter()))


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() if process.name() == "ssh" else []
    except psutil.NoSuchProcess:
        return []


def test_where_ssh_is_missing_the_refusal_says_so(
    ann: Client, sshd: SshServer, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setattr("gavel.backends.git_fetch.PROGRAMS", str(tmp_path))
    assert "ssh is not on the service's machine; an operator installs it" in refusal(ann, sshd.url(work)).detail


BY_ITSELF = """import sys
from pathlib import Path
from gavel.backends.code_store import CodeStore
from gavel.backends.git_fetch import GitLimits, git_code
from gavel.errors import InvalidRequest
state_dir, url, known_hosts = sys.argv[1:]
limits = GitLimits(schemes=("ssh",), hosts=("*",), limit_s=10, limit_bytes=1_000_000, known_hosts=known_hosts)
try:
    store = CodeStore(Path(state_dir), limit_bytes=1_000_000, kept_s=60)
    git_code(Path(state_dir), store, limits, "ann", url, "HEAD", {})
except InvalidRequest as refusal:
    print(refusal.message)
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap here: install bubblewrap")
def test_the_keys_hosts_and_settings_of_the_services_user_are_not_used(
    sshd: SshServer, work: Path, tmp_path: Path
) -> None:
    """In a home folder with a key that may log in: 1 ssh itself logs in, 2 the service does not use the key,
    3 nor the hosts that the user trusts."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    files = tmp_path / "ssh"
    files.mkdir(mode=0o700)
    shutil.copy(sshd.folder / "key", files / "id_ed25519")
    shutil.copy(sshd.known_hosts, files / "known_hosts")
    places = {str(each) for each in (ROOT, sshd.folder, work, tmp_path, sys.prefix, sys.base_prefix)}
    bound = [word for each in sorted(places) for word in ("--bind", each, each)]
    there = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", str(home), *bound, "--bind", str(files), str(home / ".ssh")]

    def output(*command: str) -> str:
        ran = subprocess.run([*there, *command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        return ran.stdout

    url = sshd.url(work)
    assert output("git", "ls-remote", url, "HEAD").endswith("HEAD\n")
    alone = (sys.executable, "-c", BY_ITSELF, str(tmp_path / "state"), url)
    assert "Permission denied" in output(*alone, str(sshd.known_hosts))
    assert "Host key verification failed" in output(*alone, str(tmp_path / "none"))


@pytest.mark.full
def test_a_repository_larger_than_the_service_takes_is_cut_off(start: object, sshd: SshServer, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.mkdir()
    git(large, "init", "-q", "-b", "main")
    (large / "large").write_bytes(random.Random(0).randbytes(1_000_000))
    git(large, "add", ".")
    git(large, "commit", "-qm", "large")
    service: Service = start(code_bytes=500_000, git_known_hosts=str(sshd.known_hosts))  # type: ignore[operator]
    with Client(service.url, service.token(service.user()[0])) as client:
        assert "more than the 0.5 MB" in refusal(client, sshd.url(large), sshd.key).detail
