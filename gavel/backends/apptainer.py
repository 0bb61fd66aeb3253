"""Runs processes of a gang in the job's image with Apptainer, where a node has it and lacks Podman.

`apptainer exec` becomes the program, or stays its parent and hands signals on, so it is signalled and ended as any
process of the gang. Standard library only: a part of the supervisor.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

PROGRAMS = ("apptainer", "singularity")
GPUS = {"--nv": ("CUDA_VISIBLE_DEVICES",), "--rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}
"""The option for the devices of each vendor, and the variables that grant them."""
HANDED_OVER = "APPTAINERENV_"  # before the names of variables that are for the container
REGISTRIES = ("docker://", "oras://", "library://")
OWN = ("HOME", "PWD")  # which it sets itself


def is_apptainer(command: Sequence[str]) -> bool:
    """Return whether a command is Apptainer, by the name of its program."""
    return os.path.basename(command[0]) in PROGRAMS


def exec_command(
    command: Sequence[str], launch: Mapping[str, Any], env: Mapping[str, str], argv: Sequence[str]
) -> list[str]:
    """Return the command line that runs a program in the job's image. Folders have the same paths inside.

    Nothing of the node is there but these: neither its home folders and /tmp nor its environment.
    """
    image = launch["image"]
    words = ["--containall", "--cleanenv", "--writable-tmpfs", "--pwd", launch["cwd"], "--home", env["HOME"]]
    words += [option for option, names in GPUS.items() if any(env.get(name, "-1") not in ("", "-1") for name in names)]
    for folder, access in image["folders"].items():
        words += ["--bind", f"{folder}:{folder}:{access}"]
    return [*command, "exec", *words, image_path(image), *argv]


def handed_over(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the container as Apptainer is given them: no value is in a command line."""
    return {f"{HANDED_OVER}{name}": value for name, value in env.items() if name not in OWN}


def image_path(image: Mapping[str, Any]) -> str:
    """Return the file of an image on this node, which a pull has made."""
    digest = hashlib.sha256(image["name"].encode()).hexdigest()[:32]
    return os.path.join(image["root"], f"{digest}.sif")


def pull_command(command: Sequence[str], image: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    """Return what makes the file of an image: of a registry, whatever its name begins with."""
    name = image["name"]
    source = name if name.startswith(REGISTRIES) else f"docker://{name}"
    login = ["--authfile", env["REGISTRY_AUTH_FILE"]] if "REGISTRY_AUTH_FILE" in env else []
    return [*command, "pull", "--force", *login, image_path(image), source]
