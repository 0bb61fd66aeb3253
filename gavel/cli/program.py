"""What of the caller goes with a job: its program, its working directory, its interpreter, its environment."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import typer

from gavel.backends.machine import boot_id
from gavel.cli.connection import fail
from gavel.cli.job_file import Given
from gavel.client import Client, CodeOfJob, Job, JobSubmit

UNTRACKED_NAMED = 3
PYTHON_ANSWER_S = 10.0


def argv_of(program: Sequence[str], workdir: Path | None = None, *, is_here: bool = True) -> list[str] | None:
    """Return the program to run; None without one: the catalogue's.

    A Python file becomes `python` and its path: below `workdir` relative to it, elsewhere absolute. Where it `is_here`
    it has to exist.
    """
    if not program:
        return None
    if not program[0].endswith(".py"):
        return list(program)
    path = Path(os.path.abspath(program[0]))  # links are kept: they may be part of the working directory
    if is_here and not path.is_file():
        fail(f"there is no file {path}")
    is_below = workdir is not None and path.is_relative_to(workdir)
    return ["python", str(path.relative_to(workdir) if is_below and workdir else path), *program[1:]]


def argv_there(program: Sequence[str]) -> list[str]:
    """Return the program to run in a repository that is not here: a Python file becomes `python` and its path there."""
    return ["python", *program] if program[0].endswith(".py") else list(program)


def check_repository(url: str, program: Sequence[str], snapshot: bool, given: Given) -> None:
    """End the command where `--git-url` does not go with the rest of the command line."""
    if not program or not snapshot:
        fail("--git-url: it goes with a program of your own, in a copy (without --no-snapshot)")
    if "workdir" in given.command_line:
        fail("--workdir: the job runs in the top folder of --git-url; leave it out, and name the program below that")
    if "://" not in url and ":" not in url:
        fail(f"--git-url {url}: it is a URL; for a repository on this machine use --workdir {url} --git-ref REF")
    if program[0].endswith(".py") and os.path.isabs(program[0]):
        fail(f"{program[0]}: name the file as it is in the repository, such as {os.path.basename(program[0])}")


def program_of(given: list[str] | None, fields: Mapping[str, Any], steps: int | None) -> list[str]:
    """Return the words of the program: those of the command line, else of the job file.

    Say that a `--steps` among them is the program's own: somebody may have meant the job's.
    """
    program: list[str] = given or fields.get("argv") or []
    if steps is None and "--steps" in program:
        words = f"for the job's own write gavel job submit --steps N {program[0]}"
        typer.echo(f"--steps stands after {program[0]}, so it is that program's; {words}", err=True)
    return program


def _check_what_runs(wanted: JobSubmit) -> None:
    """End the command where a job has neither a program nor a kind that brings one."""
    if not wanted.get("argv") and not wanted.get("kind"):
        fail("name a program, as in gavel job submit train.py, or a kind of `gavel catalogue`: --kind mlp-b256")


def workdir_of(given: Path) -> Path:
    """Return the absolute path of the folder. End the command if there is none."""
    folder = Path(os.path.abspath(given.expanduser()))
    if not folder.is_dir():
        fail(f"--workdir {given}: there is no such folder")
    return folder


def of_caller(
    client: Client,
    program: list[str],
    folder: Path,
    python: str | None,
    snapshot: bool,
    wanted: JobSubmit,
    git_ref: str | None = None,
    git_url: str | None = None,
) -> JobSubmit:
    """Return the fields that say where the program runs, and with which interpreter, after storing its code.

    None for a catalogue's program, and where what is `wanted` says which code to run, unless a `git_ref` or `git_url`
    does. An image has an interpreter of its own. End the command where nothing says what runs.
    """
    _check_what_runs(wanted)
    if git_ref is not None and not (program and snapshot):
        fail("--git-ref: it goes with a program of your own, in a copy (without --no-snapshot)")
    if not program or (wanted.get("code") and git_ref is None and git_url is None):
        return {}
    limits = client.code_limits()
    is_here = limits["machine"] == boot_id() and not wanted.get("image")
    stated = python or wanted.get("python")
    interpreter = python_of(stated, folder, os.environ, is_here=is_here)
    if interpreter and not stated and not is_below(interpreter, limits["folders"]):
        why = "jobs may not name its folder here, so this one gets a Python of the service, without packages"
        typer.echo(f"{interpreter}: {why}", err=True)
        interpreter = None
    own: dict[str, Any] = {"workdir": None if git_url else str(folder), "python": interpreter}
    if git_url is not None:
        words = argv_there(program)
        script = os.path.normpath(words[1]) if program[0].endswith(".py") else ""
        secrets = wanted.get("secrets", ())
        own["code"] = client.fetch_code(git_url, git_ref or "HEAD", secrets=secrets, script=script)
    elif git_ref is not None:
        own["code"] = code_at(client, program, folder, git_ref)
    elif snapshot:
        own["code"] = stored_code(client, program, folder)
    return cast(JobSubmit, {name: value for name, value in own.items() if value is not None})


def stored_code(client: Client, program: Sequence[str], workdir: Path) -> CodeOfJob:
    """Store the files of the working directory; return what the job is submitted with.

    What git does not track is named on stderr. End the command if the folder is too large, or a file cannot be read.
    """
    from gavel.client.worktree import CodeTooLarge, worktree_of

    words = (argv_of(program, workdir) or ())[:2]
    own = [word for word in words if not os.path.isabs(word) and (workdir / word).is_file()]
    try:
        worktree = worktree_of(workdir, own)
        stored = client.store_code(worktree)
    except (CodeTooLarge, OSError) as error:
        fail(f"--snapshot: {error}")
    if worktree.untracked:
        named = ", ".join(worktree.untracked[:UNTRACKED_NAMED])
        more = f" and {len(worktree.untracked) - UNTRACKED_NAMED} more" * (len(worktree.untracked) > UNTRACKED_NAMED)
        typer.echo(f"git does not track {named}{more}: not a part of the job's code (git add them)", err=True)
    return stored


def code_at(client: Client, program: Sequence[str], workdir: Path, ref: str) -> CodeOfJob:
    """Store the files that git has at the ref; return what the job is submitted with. End the command if it cannot."""
    from gavel.client.worktree import CodeTooLarge, NoSuchRef, worktree_at

    words = argv_of(program, workdir, is_here=False) or []
    scripts = [word for word in words[1:2] if program[0].endswith(".py") and not os.path.isabs(word)]
    try:
        with worktree_at(workdir, ref) as worktree:
            for script in scripts:
                if script not in worktree.sizes:
                    fail(f"--git-ref: there is no file {script} in {worktree.title}")
            return client.store_code(worktree)
    except (CodeTooLarge, NoSuchRef, OSError) as error:
        fail(f"--git-ref: {error}")


def python_of(given: str | None, workdir: Path, environment: Mapping[str, str], *, is_here: bool) -> str | None:
    """Return the path of the interpreter that was named, else of the caller's own; None: one without packages.

    The caller's own is that of `$VIRTUAL_ENV`, of `$CONDA_PREFIX`, of a `.venv` in the working directory or here, or
    `python` on the PATH. It counts only where jobs run on this machine (`is_here`): another one has other paths.
    """
    if given:
        return os.path.abspath(os.path.expanduser(given))  # a link is kept: it is what makes a virtual environment
    if not is_here:
        return None
    prefixes = [
        environment.get("VIRTUAL_ENV"),
        environment.get("CONDA_PREFIX"),
        workdir / ".venv",
        Path.cwd() / ".venv",
    ]
    paths = [Path(prefix).absolute() / "bin" / "python" for prefix in prefixes if prefix]
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None) or _python_on(environment)


def _python_on(environment: Mapping[str, str]) -> str | None:
    """Return the interpreter that `python` runs in the caller's shell, as it names itself: a shim leads elsewhere."""
    path = environment.get("PATH")
    program = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if program is None:
        return None
    try:
        asked = [program, "-I", "-S", "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=PYTHON_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Return whether the folder of a program is one of the folders, or below one."""
    real = Path(path).parent.resolve()
    return any(real.is_relative_to(each) for each in folders)


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file of lines NAME=VALUE, quoted or not; `#` begins a comment. Nothing is expanded."""
    from dotenv import dotenv_values

    if not path.is_file():
        fail(f"--env-file {path}: there is no such file")
    values = dotenv_values(path, interpolate=False)
    for name, value in values.items():
        if value is None:
            fail(f"--env-file {path}: {name} has no value; write NAME=VALUE")
    return {name: value for name, value in values.items() if value is not None}


def phases_text(job: Job) -> str:
    """Return the time that a job spent in each phase besides training, with its share of the time that it ran."""
    held_s = sum(job["received_s"].values())
    named = sorted(job["phases_s"].items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {seconds:.0f} s{_share(seconds, held_s)}" for name, seconds in named)


def _share(seconds: float, of_s: float) -> str:
    return f" ({min(1.0, seconds / of_s):.0%})" if of_s > 0 else ""


def program_rows(job: Job) -> list[tuple[str, str]]:
    """Return what a job runs and where, each part with its name for people."""
    code, version = job["code"], ""
    if code:
        changes = (
            f" with changes (gavel job diff {job['id']})" if code["diff"] else " with changes" * code["is_modified"]
        )
        commit = f" of commit {code['commit'][:12]}{changes}" if code["commit"] else ""
        source = f" of {code['git_url']} at {code['git_ref']}" if code["git_url"] else ""
        version = f"{code['digest'][:12]}{commit}{source}"
    return [
        ("program", shlex.join(job["argv"])),
        ("working directory", job["workdir"]),
        ("code", version),
        ("interpreter", job["python"]),
        ("setup", job["setup"]),
        ("saved by", job["dump"]),
        ("restored by", job["restore"]),
        ("image", job["image"]),
        ("inputs", ", ".join(f"{name}={source}" for name, source in job["data"].items())),
        ("secrets", ", ".join(job["secrets"])),
        ("environment sets", ", ".join(job["env"])),
    ]
