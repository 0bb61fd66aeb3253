"""Jobs in images on nodes with Apptainer: the command lines, by a stand-in that notes them and runs the program."""

import shutil
from pathlib import Path

import pytest

from gavel.backends import containers
from gavel.backends.apptainer import exec_command, pull_command
from gavel.backends.containers import image_command
from gavel.backends.harness import exit_of, stop
from gavel.backends.launch import Preparation
from gavel.ports import Instruction
from gavel.types import GangOutcome
from tests.backends.clusters import LocalHarness, directory, eventually, script

IMAGE = "registry.example/train:1"
APPTAINER = """#!/bin/sh
printf '%s\\n' "$@" > FOLDER/$1
env > FOLDER/$1.env
[ -e FOLDER/fails ] && { echo "FATAL: manifest unknown" >&2; exit 255; }
case "$1" in
pull) for word; do case "$word" in *.sif) touch "$word";; esac; done;;
exec) while case "$1" in *.sif) false;; esac; do shift; done; shift; exec "$@";;
esac
"""


@pytest.fixture
def node(tmp_path: Path, harness: LocalHarness) -> Path:
    """What the stand-in notes: its words and its variables, by command."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "apptainer"
    program.write_text(APPTAINER.replace("FOLDER", str(folder)))
    program.chmod(0o700)
    harness.crash()
    preparation = Preparation(image_command=(str(program),), secrets_of=lambda user, names: {"TOKEN": "a-long-secret"})
    harness.backend = harness.open(preparation=preparation, lease_grace_s=30.0)
    return folder


def in_image(harness: LocalHarness, text: str, job_id: str = "j1", **over: object) -> list[Instruction]:
    return script(harness, "", job_id=job_id, argv=("sh", "-c", text), image=IMAGE, **over)


def test_a_job_sees_in_its_container_what_it_sees_with_podman(
    harness: LocalHarness, node: Path, tmp_path: Path
) -> None:
    """1 the image is pulled once, 2 the container has the folders and variables of the job and nothing else, 3 no value
    is in the command line, 4 the exit code is the program's."""
    env = {"RATE": "0.1", "PATH": "/opt/bin:/bin:/usr/bin", "REGISTRY_AUTH_FILE": "/home/ann/auth.json"}
    text = 'echo "$APPTAINERENV_RATE $APPTAINERENV_TOKEN"; exit 7'
    (tmp_path / "set").mkdir()
    own = {"env": env, "workdir": str(tmp_path), "secrets": ("TOKEN",), "data": {"x": str(tmp_path / "set")}}
    harness.backend.execute(in_image(harness, text, **own))
    end = exit_of(harness, "j1")
    assert (end.exit_code, end.log_tail.splitlines()[-1]) == (7, "0.1 ***"), end
    words, state = (node / "exec").read_text().splitlines(), harness.folder
    assert words[:4] == ["exec", "--containall", "--cleanenv", "--writable-tmpfs"] and words[-3:] == ["sh", "-c", text]
    assert words[words.index("--pwd") + 1] == str(tmp_path)
    assert words[words.index("--home") + 1] == str(state / "work" / "j1")
    binds = {words[at + 1] for at, word in enumerate(words) if word == "--bind"}
    shared = {
        f"{each}:{each}:rw" for each in (tmp_path, state / "checkpoints" / "j1", directory(harness, "j1") / "job")
    }
    assert shared | {f"{tmp_path}/set:{tmp_path}/set:ro"} <= binds
    assert "a-long-secret" not in " ".join(words) and "--nv" not in words and "--rocm" not in words
    given = dict(line.split("=", 1) for line in (node / "exec.env").read_text().splitlines() if "=" in line)
    assert given["APPTAINERENV_TOKEN"] == "a-long-secret" and given["APPTAINERENV_PATH"] == env["PATH"]
    assert "APPTAINERENV_HOME" not in given, "Apptainer refuses it; --home says it"
    pulled = (node / "pull").read_text().splitlines()
    assert (pulled[-1], pulled[-3]) == (f"docker://{IMAGE}", "/home/ann/auth.json")
    (node / "pull").unlink()
    harness.backend.execute(in_image(harness, "true", "j2"))
    assert exit_of(harness, "j2").exit_code == 0 and not (node / "pull").exists()


def test_a_stop_reaches_the_program(harness: LocalHarness, node: Path) -> None:
    text = (
        "trap 'echo saving; exit 75' TERM; touch \"$APPTAINERENV_GAVEL_GANG_DIR/go\"; while true; do sleep 0.02; done"
    )
    harness.backend.execute(in_image(harness, text))
    eventually((directory(harness, "j1") / "job" / "go").exists)
    harness.backend.execute(stop("j1"))
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code, end.log_tail.splitlines()[-1]) == (GangOutcome.PREEMPTED, 75, "saving")


def test_a_pull_that_fails_ends_the_job_with_the_words_of_apptainer(harness: LocalHarness, node: Path) -> None:
    (node / "fails").touch()
    harness.backend.execute(in_image(harness, "true"))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED and end.message.endswith(": FATAL: manifest unknown")


def test_podman_goes_first_and_apptainer_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where neither is, the name of the first is what the refusal has."""
    monkeypatch.setattr(containers, "SEARCH", str(tmp_path))
    wanted = ["podman", "--log-level", "error"]
    assert image_command(wanted) == wanted
    for name in ("singularity", "apptainer"):
        (tmp_path / name).symlink_to(str(shutil.which("true")))
        assert image_command(wanted) == [name]
    (tmp_path / "podman").symlink_to(str(shutil.which("true")))
    assert image_command(wanted) == wanted


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, ["--nv"]),
        ({"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "GPU-2"}, ["--rocm"]),
        ({"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_the_devices_of_a_worker_are_those_of_its_container(env: dict[str, str], options: list[str]) -> None:
    launch = {"cwd": "/work", "image": {"name": IMAGE, "root": "/images", "folders": {}}}
    words = exec_command(["apptainer"], launch, {"HOME": "/work", **env}, ["true"])
    assert [each for each in words if each in ("--nv", "--rocm")] == options


def test_an_image_comes_from_a_registry_and_from_no_file_of_the_node() -> None:
    for name in ("docker-archive:/etc/x", "file:///etc/x", "https://there/x.sif"):
        image = {"name": name, "root": "/images"}
        assert pull_command(["apptainer"], image, {})[-1] == f"docker://{name}"
