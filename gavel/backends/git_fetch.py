"""Fetches the code of a job from a git repository at a URL, once for each commit and user, and stores its files."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from gavel.backends.code_store import CodeStore, code_dir
from gavel.backends.durable import write_durable
from gavel.backends.git_ssh import SSH_KEY, has_passphrase, ssh_command, ssh_cure
from gavel.backends.output import Mask
from gavel.client.worktree import Worktree, worktree_at
from gavel.code_tree import digest_of, megabytes, packed
from gavel.errors import InvalidRequest, NotFound

SECRETS = ("GIT_TOKEN", "GIT_USERNAME", SSH_KEY)
"""The secrets that git is given: the password and the user for https, and a private key for ssh."""
POLL_S = 0.1
LEFT_ALONE_S = 5.0  # what git lasts longer than its limit where nobody ends it
LOOK_EVERY_S = 1.0  # at the size of what has come
WORDS_LETTERS = 500
BATCH = 64  # chunks that are stored together
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REF = re.compile(r"(?!-)(?!.*(\.\.|//|@\{))[A-Za-z0-9_][\w./+@#=-]{0,254}")
SCP_FORM = re.compile(r"([\w.-]+@)?([\w.-]+):(?!//|:)(\S+)")
OF_PROXIES = re.compile(r"(http|https|no|all)_proxy|(HTTP|HTTPS|NO|ALL)_PROXY|SSL_CERT_\w+|GIT_SSL_CAINFO")
ISOLATED = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
NO_REDIRECTS = ("-c", "http.followRedirects=false", "-c", "credential.helper=")
NO_WORDS = re.compile(
    r"Load key|ssh-keygen|remove with|fatal: Could not read from remote|Please make sure you have|and the repository ex"
)
PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
ASK = """#!/bin/sh
case "$1" in Username*) printf '%s\\n' "$GIT_USERNAME";; *) printf '%s\\n' "$GIT_TOKEN";; esac
"""


class GitFailed(InvalidRequest):
    """Git ended with an error; the message has its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLimits:
    """From where the service fetches, how, and how much: the settings `git_*` and `code_bytes`."""

    schemes: Sequence[str]
    hosts: Sequence[str]
    limit_s: float
    limit_bytes: int
    known_hosts: str


@dataclass(frozen=True, slots=True)
class GitCode:
    """The digest of the stored files, and the commit that they are of."""

    digest: str
    commit: str


def url_problem(url: str, limits: GitLimits) -> str:
    """Return why nothing is fetched from a URL, and what to write instead; "" if it may be."""
    if match := SCP_FORM.fullmatch(url):
        return f"write ssh://{match[1] or ''}{match[2]}/{match[3].lstrip('/')}"
    parts = urlsplit(url)
    if parts.scheme not in limits.schemes or "::" in url or not re.fullmatch(r"[!-~]+", url):
        allowed = ", ".join(f"{each}://" for each in limits.schemes)
        return f"the service fetches code from URLs that begin with {allowed} (git_schemes); name one"
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        return (
            "a job is shown with its URL: leave user and password out of it, store them as secrets of the names"
            " GIT_USERNAME and GIT_TOKEN, and name these with --secret"
        )
    if parts.scheme == "file":
        return ""
    if not parts.hostname or parts.hostname.startswith("-") or (parts.username or "").startswith("-"):
        return "name a host after the scheme"
    if not any(fnmatchcase(parts.hostname.lower(), each.lower()) for each in limits.hosts):
        return f"the service fetches no code from {parts.hostname} (git_hosts); an operator allows hosts"
    return ""


def ref_problem(ref: str) -> str:
    """Return why a text is no ref; "" if it may be one."""
    return "" if REF.fullmatch(ref) else f"{ref!r} is no branch, tag or whole commit id"


def git_code(
    state_dir: Path, store: CodeStore, limits: GitLimits, user: str, url: str, ref: str, secrets: Mapping[str, str]
) -> GitCode:
    """Return the stored code of a user from a repository at a ref, fetched unless the same commit is stored.

    Raises InvalidRequest with git's words, OSError.
    """
    if has_passphrase(secrets.get(SSH_KEY, "")):
        message = f"the key in {SSH_KEY} has a passphrase, which nobody can type: store one without a passphrase"
        raise InvalidRequest("secrets", message)
    with tempfile.TemporaryDirectory(prefix="gavel-git-") as temporary:
        repository = _Repository(Path(temporary), limits, url, secrets)
        wanted, commit = repository.resolved(ref)
        note = code_dir(state_dir) / "git" / f"{digest_of(f'{user} {url} {commit}'.encode())}.digest"
        if digest := _stored(store, note):
            return GitCode(digest, commit)
        repository.fetch(wanted, commit)
        with worktree_at(repository.folder, commit, **ISOLATED) as worktree:
            digest = _store(store, worktree, user)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durable(note, digest.encode())
        return GitCode(digest, commit)


def _stored(store: CodeStore, note: Path) -> str:
    """Return the digest that a note names; "" unless all of that version is stored still."""
    with suppress(FileNotFoundError, NotFound):
        digest = note.read_text(encoding="ascii")
        return "" if store.missing(digest) else digest
    note.unlink(missing_ok=True)
    return ""


def _store(store: CodeStore, worktree: Worktree, user: str) -> str:
    files = list(worktree.files())
    try:
        digest, missing = store.put(files, user)
    except InvalidRequest as refusal:
        raise InvalidRequest("git_url", refusal.message) from None
    batch: list[bytes] = []
    for chunk in worktree.chunks(files, missing):
        batch.append(chunk)
        if len(batch) >= BATCH:
            store.put_chunks(digest, packed(batch))
            batch = []
    store.put_chunks(digest, packed(batch))
    return digest


class _Repository:
    """An empty repository in a temporary folder, into which a commit is fetched."""

    def __init__(self, temporary: Path, limits: GitLimits, url: str, secrets: Mapping[str, str]) -> None:
        self.folder = temporary / "repository"
        self._limits, self._url, self._secrets, self._mask = limits, url, secrets, Mask(secrets.values())
        self._ends_s = time.monotonic() + limits.limit_s
        self._environment = _environment(temporary, limits, secrets)
        self._output, self._errors = temporary / "output", temporary / "errors"
        if urlsplit(url).scheme == "ssh":
            self._program("ssh")
        self._git("init", "--quiet", str(self.folder), at=temporary)

    def resolved(self, ref: str) -> tuple[str, str]:
        """Return what is to be fetched for a ref, "HEAD" by default, and the commit that it names now."""
        if COMMIT.fullmatch(ref):
            return ref, ref
        lines = self._git("ls-remote", "--quiet", "--", self._url, ref, f"{ref}^{{}}").splitlines()
        commits = {name: commit for commit, _, name in (line.partition("\t") for line in lines)}
        for name in (ref, f"refs/tags/{ref}", f"refs/heads/{ref}"):
            if name in commits:
                return name, commits.get(f"{name}^{{}}", commits[name])
        short = "; give all 40 characters of a commit" if re.fullmatch(r"[0-9a-f]{4,39}", ref) else ""
        raise InvalidRequest("git_ref", f"{self._url} has no branch or tag {ref}{short}")

    def fetch(self, wanted: str, commit: str) -> None:
        """Fetch the commit: alone where the server can send it so, else with all branches and tags."""
        options = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
        with suppress(GitFailed):
            self._git(*options, "--depth=1", "--", self._url, wanted)
            if self._has(commit):
                return
        self._git(*options, "--", self._url, "+refs/heads/*:refs/remotes/all/*", "+refs/tags/*:refs/tags/*")
        if not self._has(commit):
            raise InvalidRequest("git_ref", f"no branch or tag of {self._url} has the commit {commit}")

    def _has(self, commit: str) -> bool:
        try:
            return bool(self._git("cat-file", "-t", f"{commit}^{{commit}}"))
        except GitFailed:
            return False

    def _git(self, *arguments: str, at: Path | None = None) -> str:
        """Return what git prints. Raises InvalidRequest with its words if it fails, or a limit is reached."""
        program = self._program("git")
        last_s = self._limits.limit_s + LEFT_ALONE_S  # where the service has ended before git
        ends = ("timeout", "--kill-after=1", f"{last_s:g}")
        command = [*ends, program, *NO_REDIRECTS, *arguments]
        with open(self._output, "wb") as output, open(self._errors, "wb") as errors:
            process = subprocess.Popen(
                command, cwd=at or self.folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=errors, start_new_session=True,
            )  # fmt: skip
            try:
                self._wait(process)
            finally:
                with suppress(ProcessLookupError):  # what git started, too
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise GitFailed("git_url", self._words(process.returncode))
        return self._output.read_text(encoding="utf-8", errors="replace")

    def _program(self, name: str) -> str:
        program = shutil.which(name, path=PROGRAMS)
        if program is None:
            raise InvalidRequest("git_url", f"{name} is not on the service's machine; an operator installs it there")
        return program

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        look_s = time.monotonic() + LOOK_EVERY_S
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
                look_s = 0.0  # once more, at all that has come
            now_s = time.monotonic()
            if now_s >= self._ends_s:
                raise InvalidRequest("git_url", f"it took longer than {self._limits.limit_s:g} s (git_limit_s)")
            if now_s >= look_s:
                look_s = now_s + LOOK_EVERY_S
                if (size := _size(self.folder)) > self._limits.limit_bytes:
                    most = megabytes(self._limits.limit_bytes)
                    raise InvalidRequest("git_url", f"{megabytes(size)} have come, more than the {most} of code_bytes")
            if process.returncode is not None:
                return

    def _words(self, code: int) -> str:
        """Return what git printed at its end, without secrets, and what to do about it."""
        text = self._mask.text(self._errors.read_text(encoding="utf-8", errors="replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        words = " ".join([line for line in lines if not NO_WORDS.match(line)][-3:])[:WORDS_LETTERS]
        cure = self._cure(text)
        return f"git: {words or f'it ended with {code}'}" + (f"; {cure}" if cure else "")

    def _cure(self, errors: str) -> str:
        if urlsplit(self._url).scheme == "ssh":
            return ssh_cure(errors, self._limits.known_hosts, has_key=SSH_KEY in self._secrets)
        if not re.search(r"could not read (Username|Password)|Authentication failed", errors):
            return ""
        if "GIT_TOKEN" in self._secrets:
            return "the server does not take the secret GIT_TOKEN; store one that it takes"
        return "name a secret for it: --secret GIT_TOKEN"


def _environment(temporary: Path, limits: GitLimits, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return all that git is told: nothing of the service's user, whose keys and settings are not the job's."""
    ask = temporary / "ask"
    ask.touch(mode=0o700)
    ask.write_text(ASK, encoding="utf-8")
    given = {name: value for name, value in os.environ.items() if OF_PROXIES.fullmatch(name)}
    token = {"GIT_USERNAME": "git", **secrets, "GIT_ASKPASS": str(ask)} if "GIT_TOKEN" in secrets else {}
    token.pop(SSH_KEY, None)
    return given | ISOLATED | token | {
        "PATH": PROGRAMS,
        "HOME": str(temporary),
        "GIT_ALLOW_PROTOCOL": ":".join(limits.schemes),
        "GIT_SSH_COMMAND": ssh_command(temporary, limits.known_hosts, secrets.get(SSH_KEY)),
    }  # fmt: skip


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder, in which others work."""
    size = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.lstat(os.path.join(top, name)).st_size
    return size
