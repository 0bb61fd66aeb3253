"""Code that the service fetches from git, from a real server on this machine."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gavel.backends.code_copy import copy_code
from gavel.backends.git_fetch import GitLimits, ref_problem, url_problem
from gavel.client import Client, GavelApiError
from tests.api.conftest import Service, service
from tests.client.test_worktree import git, write
from tests.git_server import PASSWORD, GitServer, git_server

__all__ = ["service"]

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 5}
LIMITS = GitLimits(
    schemes=("https", "ssh"), hosts=("*.example.org",), limit_s=1.0, limit_bytes=1, known_hosts="/dev/null"
)


@pytest.fixture
def ann(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token(service.user()[0])) as client:
        yield client


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with a tag (annotated) and a branch; `publish` makes a bare one of it, which is served."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    write(folder, train_py="print(1)", lib__model_py="x = 1", notes="-")
    (folder / ".gavelignore").write_text("notes\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "tag", "-a", "v1", "-m", "one")
    write(folder, train_py="print(2)")
    git(folder, "commit", "-qam", "second")
    git(folder, "branch", "topic/a")
    publish(folder)
    return folder


def publish(folder: Path) -> None:
    bare = folder.parent / "served" / "repo.git"
    if not bare.exists():
        git(folder, "clone", "-q", "--bare", str(folder), str(bare))
    git(folder, "push", "-q", "--all", str(bare))
    git(bare, "update-server-info")


@pytest.fixture
def server(work: Path) -> Iterator[GitServer]:
    with git_server(work.parent / "served") as served:
        yield served


def files(service: Service, digest: str, to: Path) -> dict[str, str]:
    copy_code(str(service.settings.state_dir / "code"), digest, str(to), str(to.parent))
    return {str(each.relative_to(to)): each.read_text() for each in to.rglob("*") if each.is_file()}


def test_a_job_runs_what_a_repository_has_at_a_ref(
    ann: Client, service: Service, server: GitServer, work: Path, tmp_path: Path
) -> None:
    """1 a tag, a branch, the default and a commit, each of its own commit, 2 a job says where its code is from."""
    url = server.url("repo.git")
    first, second = git(work, "rev-parse", "v1^{commit}"), git(work, "rev-parse", "main")
    for ref, commit, text in (("v1", first, "print(1)"), ("topic/a", second, "print(2)"), (first, first, "print(1)")):
        code = ann.fetch_code(url, ref, script="train.py")
        assert (code["commit"], code["git_url"], code["git_ref"]) == (commit, url, ref)
        kept = files(service, code["digest"], tmp_path / ref.replace("/", "-"))
        assert kept == {"train.py": text, "lib/model.py": "x = 1", ".gavelignore": "notes\n"}
    job = ann.submit(**PROGRAM, code=ann.fetch_code(url))
    assert job["code"] and (job["code"]["commit"], job["code"]["git_url"], job["code"]["git_ref"]) == (
        second,
        url,
        "HEAD",
    )
    assert (job["code"]["is_modified"], job["workdir"]) == (False, "")


def test_a_commit_is_fetched_once_and_a_branch_that_moved_anew(ann: Client, server: GitServer, work: Path) -> None:
    url = server.url("repo.git")
    code = ann.fetch_code(url, "main")
    sent = server.packs_sent()
    assert ann.fetch_code(url, "main") == code and ann.fetch_code(url, "topic/a")["digest"] == code["digest"]
    write(work, train_py="print(3)")
    git(work, "commit", "-qam", "third")
    publish(work)
    assert ann.fetch_code(url, "main")["commit"] == git(work, "rev-parse", "main") != code["commit"]
    assert server.packs_sent() > sent


def test_a_commit_that_another_user_fetched_is_not_handed_out(
    ann: Client, service: Service, server: GitServer, work: Path
) -> None:
    """Who may not read the repository gets nothing of it, also by the name of a commit."""
    server.password, commit = PASSWORD, git(work, "rev-parse", "main")
    ann.put_secret("GIT_TOKEN", PASSWORD)
    assert ann.fetch_code(server.url("repo.git"), commit, secrets=["GIT_TOKEN"])["digest"]
    with Client(service.url, service.token(service.user()[0])) as bob, pytest.raises(GavelApiError, match="git: "):
        bob.fetch_code(server.url("repo.git"), commit)


def test_a_password_is_a_secret_and_stands_nowhere(ann: Client, service: Service, server: GitServer) -> None:
    """1 without one the refusal says what to do, 2 a wrong one fails and is not shown, 3 the right one, with a user."""
    server.password, url = PASSWORD, server.url("repo.git")
    with pytest.raises(GavelApiError, match=r"git: .*--secret GIT_TOKEN") as refused:
        ann.fetch_code(url)
    assert refused.value.field == "git_url"
    ann.put_secret("GIT_TOKEN", "another-long-token")
    with pytest.raises(GavelApiError, match=r"Authentication failed.*does not take the secret GIT_TOKEN") as wrong:
        ann.fetch_code(url, secrets=["GIT_TOKEN"])
    assert "another-long" not in str(wrong.value)
    ann.put_secret("GIT_TOKEN", PASSWORD)
    ann.put_secret("GIT_USERNAME", "ann-of-git")
    job = ann.submit(**PROGRAM, code=ann.fetch_code(url, secrets=["GIT_TOKEN", "GIT_USERNAME"]))
    assert "ann-of-git" in server.users and PASSWORD not in str(job)
    kept = [each for each in service.settings.state_dir.rglob("*") if each.is_file() and "secret" not in str(each)]
    assert not [each for each in kept if PASSWORD.encode() in each.read_bytes()]


def test_a_server_that_knows_nothing_of_git_will_do(ann: Client, work: Path) -> None:
    """It cannot send a commit alone, so all of the repository is fetched."""
    with git_server(work.parent / "served", is_plain=True) as plain:
        assert ann.fetch_code(plain.url("repo.git"), "v1")["commit"] == git(work, "rev-parse", "v1^{commit}")


@pytest.mark.parametrize(
    ("name", "ref", "more", "field", "message"),
    [
        ("gone.git", "main", {}, "git_url", "git: .*gone.git.* not found"),
        ("repo.git", "v9", {}, "git_ref", "has no branch or tag v9"),
        ("repo.git", "abcdef1", {}, "git_ref", "give all 40 characters"),
        ("repo.git", "0" * 40, {}, "git_ref", "has the commit 000"),
        ("repo.git", "main", {"script": "gone.py"}, "argv", "there is no file gone.py in http"),
        ("repo.git", "main", {"secrets": ["GIT_TOKEN"]}, "secrets", "there is no secret GIT_TOKEN"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_the_words_of_git(
    ann: Client, server: GitServer, name: str, ref: str, more: Any, field: str, message: str
) -> None:
    with pytest.raises(GavelApiError, match=message) as refused:
        ann.fetch_code(server.url(name), ref, **more)
    assert (refused.value.field or "").endswith(field)


def test_a_server_that_redirects_is_not_followed(ann: Client, server: GitServer, work: Path) -> None:
    with git_server(work.parent / "served") as other:
        server.redirects_to = other.url("").rstrip("/")
        with pytest.raises(GavelApiError, match="git: "):
            ann.fetch_code(server.url("repo.git"))
        assert other.requests == []


@pytest.mark.full
def test_a_server_that_does_not_answer_is_not_waited_for(start: Any, server: GitServer) -> None:
    slow = start(git_limit_s=1.0)
    server.delay.clear()
    with (
        Client(slow.url, slow.token(slow.user()[0])) as client,
        pytest.raises(GavelApiError, match=r"it took longer than 1 s \(git_limit_s\)"),
    ):
        client.fetch_code(server.url("repo.git"))


def test_a_repository_larger_than_the_service_takes_is_refused(start: Any, server: GitServer, work: Path) -> None:
    (work / "large").write_bytes(random.Random(0).randbytes(1_000_000))
    git(work, "add", ".")
    git(work, "commit", "-qm", "large")
    publish(work)
    small = start(code_bytes=500_000)
    with (
        Client(small.url, small.token(small.user()[0])) as client,
        pytest.raises(GavelApiError, match=r"more than the 0\.5 MB"),
    ):
        client.fetch_code(server.url("repo.git"))
    assert not list((small.settings.state_dir / "code").glob("trees/*"))


def test_a_fetch_that_lasts_is_asked_for_again_and_done_once(
    ann: Client, service: Service, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 the first answers say that it goes on, 2 the server answers, 3 the same fetch has the code."""
    monkeypatch.setattr("api.routes.code.FETCH_ANSWER_S", 0.05)
    server.delay.clear()
    _, bob = service.user()
    body = {"git_url": server.url("repo.git"), "git_ref": "main"}
    for _ in range(3):
        answer = bob.post("/v1/code-versions/fetch", json=body)
        assert (answer.status_code, answer.json()["digest"]) == (202, "")
    assert len(server.requests) <= 1
    for ref in ("a", "b", "c"):
        assert bob.post("/v1/code-versions/fetch", json=body | {"git_ref": ref}).status_code == 202
    assert bob.post("/v1/code-versions/fetch", json=body | {"git_ref": "d"}).status_code == 429
    server.delay.set()
    assert ann.fetch_code(server.url("repo.git"), "main")["digest"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://ann:pass@git.example.org/x", "secrets of the names GIT_USERNAME and GIT_TOKEN"),
        ("https://token@git.example.org/x", "secrets of the names"),
        ("ssh://git:pass@git.example.org/x", "secrets of the names"),
        ("git@git.example.org:team/x.git", "write ssh://git@git.example.org/team/x.git"),
        ("file:///etc", r"begin with https://, ssh:// \(git_schemes\)"),
        ("ext::sh -c touch% /tmp/x", "git_schemes"),
        ("--upload-pack=touch /tmp/x", "git_schemes"),
        ("ssh://-oProxyCommand=touch/x", "name a host"),
        ("https://elsewhere.org/x", r"no code from elsewhere.org \(git_hosts\)"),
        ("https://elsewhere.org/git.example.org", "git_hosts"),
        ("https:///x", "name a host"),
    ],
)
def test_urls_that_nothing_is_fetched_from(url: str, message: str) -> None:
    assert re.search(message, url_problem(url, LIMITS))


def test_urls_of_allowed_hosts_are_taken() -> None:
    for url in ("https://git.example.org/a/b.git", "ssh://git@git.example.org:2222/a/b.git"):
        assert url_problem(url, LIMITS) == ""


@given(st.text(max_size=20))
@example("--upload-pack=x")
@example("main:../x")
@example("a..b")
@example("v1^{/x}")
def test_no_ref_is_an_option_or_an_expression(ref: str) -> None:
    if ref_problem(ref) == "":
        assert ref[0] != "-" and ".." not in ref and not set(ref) & set(" :^~?*[\\\n\0") and "@{" not in ref


def test_a_job_does_not_state_a_url_with_a_password(ann: Client, tmp_path: Path) -> None:
    write(tmp_path, train_py="")
    code = {**ann.store_code(tmp_path), "git_url": "https://ann:pass@git.example.org/x"}
    with pytest.raises(GavelApiError, match="secrets of the names"):
        ann.submit(**PROGRAM, code=code)
