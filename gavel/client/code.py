"""The clients' calls about the code that jobs run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from gavel.client.answers import CodeDiff, CodeDiffStored, CodeLimits, CodeVersion, FetchedCode
from gavel.client.bodies import CodeFetch, CodeOfJob
from gavel.client.script import Method, Pause, Script, call, get, part
from gavel.client.worktree import Worktree, worktree_of
from gavel.code_tree import CHUNK_BYTES, packed

FETCH_PATIENCE_S, FETCH_PAUSE_S = 30.0, 0.5  # of one answer, which the service gives after 5 s; before the next
CHUNKS_A_REQUEST = 16  # about four megabytes


class CodeCalls:
    """Calls about code, part of both clients."""

    @Method
    def code_limits(self) -> Script[CodeLimits]:
        """Return what the service takes as the code of a job, and where jobs run."""
        return get("/v1/code-versions")

    @Method
    def code_diff(self, job_id: str) -> Script[CodeDiff]:
        """Return how the code of a job differs from its commit."""
        return get(f"/v1/jobs/{part(job_id)}/diff")

    @Method
    def fetch_code(
        self, git_url: str, git_ref: str = "HEAD", *, secrets: Sequence[str] = (), script: str = ""
    ) -> Script[CodeOfJob]:
        """Have the service fetch a git repository at a ref; return what `submit(code=..)` takes.

        `secrets` name what git needs (GIT_TOKEN, GIT_USERNAME, GIT_SSH_KEY); `script` is a file that has to be there.
        Raise GavelApiError with git's words.
        """
        return _fetched({"git_url": git_url, "git_ref": git_ref, "secrets": list(secrets), "script": script})

    @Method
    def store_code(self, workdir: str | Path | Worktree, also: Sequence[str] = ()) -> Script[CodeOfJob]:
        """Store the files of a folder and return what `submit(code=..)` takes; see `worktree_of` for which files.

        Only what the service lacks is sent; a call that was cut off goes on where it was when it is made again. Raise
        CodeTooLarge, OSError, GavelApiError if a file changes meanwhile. Files are read in the calling thread.
        """
        return _stored(workdir if isinstance(workdir, Worktree) else worktree_of(Path(workdir).absolute(), also))


def _fetched(body: CodeFetch) -> Script[CodeOfJob]:
    while True:
        code: FetchedCode = yield from call(
            "POST", "/v1/code-versions/fetch", may_repeat=True, json=body, patience_s=FETCH_PATIENCE_S
        )
        if code["digest"]:
            return cast(CodeOfJob, code)
        yield Pause(FETCH_PAUSE_S)


def _stored(worktree: Worktree) -> Script[CodeOfJob]:
    limits: CodeLimits = yield from get("/v1/code-versions")
    worktree.check_size(limits["max_bytes"])
    files = list(worktree.files())
    body = {"files": [asdict(each) for each in files]}
    stored: CodeVersion = yield from call("POST", "/v1/code-versions", may_repeat=True, json=body)
    path = f"/v1/code-versions/{part(stored['digest'])}/chunks"
    headers = {"Content-Type": "application/octet-stream"}
    for batch in _batches(worktree.chunks(files, stored["missing"])):
        yield from call("PUT", path, may_repeat=True, content=packed(batch), headers=headers)
    code: CodeOfJob = {"digest": stored["digest"], "commit": worktree.commit, "is_modified": worktree.is_modified}
    if worktree.diff:
        path = "/v1/code-diffs"
        diff: CodeDiffStored = yield from call("POST", path, may_repeat=True, content=worktree.diff, headers=headers)
        code["diff"] = diff["digest"]
    return code


def _batches(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the chunks in lists of about as many bytes."""
    batch: list[bytes] = []
    for chunk in chunks:
        batch.append(chunk)
        if sum(map(len, batch)) >= CHUNKS_A_REQUEST * CHUNK_BYTES or len(batch) >= 64 * CHUNKS_A_REQUEST:
            yield batch
            batch = []
    if batch:
        yield batch
