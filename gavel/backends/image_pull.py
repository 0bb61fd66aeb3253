"""Pulls the image of a gang's job: `python -I -S -X utf8 image_pull.py GANG_DIR LOCK`.

See images.py. It has the lock from its beginning, and ends with the pull. Standard library only.
"""

import os
import subprocess
import sys
import time
from typing import Any

if __name__ == "__main__":  # run by path with -I: find the package from this file's folder
    sys.path.append(__file__.removesuffix("gavel/backends/image_pull.py"))

from gavel.backends.apptainer import is_apptainer, pull_command
from gavel.backends.containers import image_command
from gavel.backends.images import Pull, pull_environment
from gavel.backends.machine import read_json
from gavel.backends.output import Mask

NICENESS = 10  # what trains beside it goes first
MESSAGE_LETTERS = 500


def pull(launch: dict[str, Any]) -> str:
    """Pull the image; return why it failed, "" if it did not."""
    image = launch["image"]
    env, tool = pull_environment(launch), image_command(image["command"])
    command = pull_command(tool, image, env) if is_apptainer(tool) else [*tool, "pull", "--quiet", image["name"]]
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=image["limit_s"],
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {image['limit_s']:g} s (setup_limit_s)"
    except OSError as problem:
        return str(problem)
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), f"{tool[0]} ended with {done.returncode}")
    return last.strip()[:MESSAGE_LETTERS] if done.returncode else ""


def main(directory: str) -> None:
    """Pull, and record how that ended."""
    launch = read_json(os.path.join(directory, "launch.json"))
    os.nice(NICENESS)
    begun_s = time.monotonic()
    message = Mask(launch["secrets"].values()).text(pull(launch))
    Pull(launch["image"]["root"], launch["image"]["name"]).record(time.monotonic() - begun_s, message)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[2]), False)
    main(sys.argv[1])
