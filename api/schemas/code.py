"""The code that jobs run: what the service takes, what is stored, and where jobs run."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.fields import TEXT_PATTERN, Request, View, example
from api.schemas.secrets import SecretName
from gavel.code_tree import CHUNK_BYTES, FILES_MAX

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
DiffDigest = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$", max_length=64)]
GitUrl = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=2000)]
GitRef = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=255)]
Commit = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$", max_length=64)]
FilePath = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, min_length=1, max_length=4096)]


class CodeFile(Request):
    """One file of a code version."""

    path: FilePath = Field(description="Below the folder, with `/`.")
    size_bytes: int = Field(0, ge=0, le=1 << 50)
    chunks: list[Digest] = Field(
        default_factory=list, description=f"SHA-256 of each {CHUNK_BYTES} bytes, in order; the last may be shorter."
    )
    is_executable: bool = False
    target: Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=4096)] = Field(
        "", description="What a symbolic link leads to; empty for a plain file."
    )


class CodeVersionPut(Request):
    """All files of a working directory."""

    model_config = example(files=[{"path": "train.py", "size_bytes": 3, "chunks": ["ab" * 32]}])

    files: list[CodeFile] = Field(max_length=FILES_MAX)


class CodeVersionView(View):
    """A code version, and which of its chunks have to be sent; without any it is complete."""

    digest: str
    missing: list[str]


class CodeFetch(Request):
    """A git repository, and what of it a job is to run."""

    model_config = example(git_url="https://git.example.org/vision/train.git", git_ref="v1.2")

    git_url: GitUrl = Field(min_length=1, description="Without user and password: these are secrets, see `secrets`.")
    git_ref: GitRef = Field("HEAD", min_length=1, description="A branch, a tag, or all characters of a commit.")
    secrets: list[SecretName] = Field(
        default_factory=list,
        max_length=100,
        description="Names of your secrets. Of these git is given GIT_TOKEN, GIT_USERNAME and GIT_SSH_KEY.",
    )
    script: Annotated[str, StringConstraints(pattern=TEXT_PATTERN, max_length=4096)] = Field(
        "", description="A file that has to be there; empty: none."
    )


class FetchedCodeView(View):
    """Code that the service fetched from a git repository, as the field `code` of a job takes it."""

    digest: str = Field(description="Of the code version; empty: it is still being fetched, so ask again.")
    commit: str
    git_url: str
    git_ref: str


class CodeOfJob(Request):
    """Which code version a job runs. Commit and changes are what the caller says; the digest is what runs."""

    digest: Digest
    commit: Commit = Field("", description="The git commit that the files came from; empty outside git.")
    is_modified: bool = Field(False, description="Files differ from the commit.")
    git_url: GitUrl = Field(
        "", description="The git repository that the service fetched them from; empty: they were sent."
    )
    git_ref: GitRef = Field("", description="The branch, tag or commit there, as it was asked for.")
    diff: DiffDigest = Field("", description="How they differ, stored with POST /v1/code-diffs; empty: nobody says it.")


class CodeView(View):
    """Which code a job runs."""

    digest: str = Field(description="SHA-256 of the list of files with their contents.")
    commit: str = Field(description="The git commit that the files came from; empty outside git.")
    is_modified: bool = Field(description="Files differ from the commit.")
    git_url: str = Field(description="The git repository that the service fetched them from; empty: they were sent.")
    git_ref: str = Field(description="The branch, tag or commit there, as it was asked for.")
    diff: str = Field(
        description="Digest of the text that says how, GET /v1/jobs/{job_id}/diff; empty: none is stored."
    )


class CodeDiffStored(View):
    """A diff that is stored."""

    digest: str = Field(description="For the field `diff` of a job's code.")


class CodeDiffView(View):
    """How a job's code differs from its commit."""

    commit: str
    text: str = Field(
        description="As `git diff` writes it, with *** for the user's secrets; empty: it does not differ."
    )
    is_cut: bool = Field(description="It is longer; its last line says so.")


class CodeLimitsView(View):
    """What the service takes as the code of a job, and where jobs run."""

    max_bytes: int = Field(description="Most that the files of a code version may have together.")
    machine: str = Field(
        description="Boot id of the one machine that jobs run on, whose paths are theirs; empty: a cluster of several."
    )
    folders: list[str] = Field(
        description="Folders of that machine in which jobs of the caller may name files; / is anywhere."
    )
