"""The code that jobs run: what the service takes, what is stored, and where jobs run."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.fields import TEXT_PATTERN, Request, View, example
from gavel.code_tree import CHUNK_BYTES, FILES_MAX

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
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


class CodeOfJob(Request):
    """Which code version a job runs. Commit and changes are what the caller says; the digest is what runs."""

    digest: Digest
    commit: Commit = Field("", description="The git commit that the files came from; empty outside git.")
    is_modified: bool = Field(False, description="Files differ from the commit.")


class CodeView(View):
    """Which code a job runs."""

    digest: str = Field(description="SHA-256 of the list of files with their contents.")
    commit: str = Field(description="The git commit that the files came from; empty outside git.")
    is_modified: bool = Field(description="Files differ from the commit.")


class CodeLimitsView(View):
    """What the service takes as the code of a job, and where jobs run."""

    max_bytes: int = Field(description="Most that the files of a code version may have together.")
    machine: str = Field(
        description="Boot id of the one machine that jobs run on, whose paths are theirs; empty: a cluster of several."
    )
    folders: list[str] = Field(
        description="Folders of that machine in which jobs of the caller may name files; / is anywhere."
    )
