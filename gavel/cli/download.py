"""Writes what jobs leave into local folders: whole files, at their place only once they are complete."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from gavel.cli.connection import fail
from gavel.client import Client, JobFile

ATTEMPTS = 5  # in a row without a byte more


def chosen(files: Sequence[JobFile], wanted: Sequence[str]) -> list[JobFile]:
    """Return the files that are named, or lie below a folder that is named; all if none is. End the command else."""
    names = [each.strip("/") for each in wanted]
    for name in names:
        if not any(_is_in(file["path"], name) for file in files):
            fail(f"the job has no output file or folder {name}; `gavel job files` lists them")
    return [file for file in files if not names or any(_is_in(file["path"], name) for name in names)]


def _is_in(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}/")


def save_file(client: Client, job_id: str, file: JobFile, folder: Path) -> Path:
    """Write a file below the folder and return its path. A lost connection goes on where it was."""
    path = PurePosixPath(file["path"])
    if path.is_absolute() or ".." in path.parts:  # the service never lists such a path
        fail(f"{path} leads out of the folder; it was not written")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    import httpx

    with part.open("wb") as output:
        attempts = 0
        while True:
            before = output.tell()
            try:
                for chunk in client.read_file(job_id, file["path"], offset=before):
                    output.write(chunk)
                break
            except httpx.TransportError:
                attempts = 0 if output.tell() > before else attempts + 1
                if attempts >= ATTEMPTS:
                    raise
    part.rename(target)
    return target


def save_checkpoint(client: Client, job_id: str, folder: Path) -> Path:
    """Write the accepted checkpoint as a tar archive into the folder and return its path. End the command if none."""
    checkpoints = client.job_checkpoints(job_id)
    if checkpoints["accepted"] is None:
        fail("the job has no accepted checkpoint yet")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{checkpoints['accepted']}.tar"
    part = target.with_name(f".{target.name}.part")
    with part.open("wb") as output:
        for chunk in client.read_checkpoint(job_id, checkpoints["accepted"]):
            output.write(chunk)
    part.rename(target)
    return target
