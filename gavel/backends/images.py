"""The image of a job, brought to its node before its ranks start: pulled once for each node, in the background.

Standard library only: a part of the supervisor. A process of its own pulls (image_pull.py). Below the folder:

    DIGEST.lock          held by the process that pulls the image of this name
    DIGEST.json          {"ended", "seconds", "message"}: how many pulls have ended, how long the last one took, and why
                         it failed; "": it did not
    jobs/JOB             {"ended"}: the pulls that had ended before the job came
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from gavel.backends.apptainer import image_path, is_apptainer
from gavel.backends.containers import SEARCH, image_command
from gavel.backends.machine import write_json
from gavel.backends.output import Log
from gavel.backends.preparation import PreparationFailed, job_record, locked, read_record, start_detached

POLL_S = 0.2
ASK_LIMIT_S = 60.0
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
READ_FOR_PULLS = ("REGISTRY_AUTH_FILE", *PROXIES, *(each.lower() for each in PROXIES))
"""Variables of a job that Podman reads when it pulls."""


class Pull:
    """The pulls of one image on this node."""

    def __init__(self, root: str, image: str) -> None:
        self.digest = hashlib.sha256(image.encode()).hexdigest()[:32]
        self.path = os.path.join(root, self.digest)
        os.makedirs(root, mode=0o700, exist_ok=True)

    def newest(self) -> tuple[int, float, str]:
        """Return how many have ended, and of the last one the seconds and why it failed; "": it did not."""
        record = read_record(f"{self.path}.json")
        return int(record.get("ended", 0)), float(record.get("seconds", 0.0)), str(record.get("message", ""))

    def record(self, seconds: float, message: str) -> None:
        """Note how a pull has ended."""
        write_json(f"{self.path}.json", {"ended": self.newest()[0] + 1, "seconds": seconds, "message": message})


def wait_for_image(launch: dict[str, Any], directory: str, log: Log, is_over: Callable[[], bool]) -> bool:
    """Have the image pulled if the node lacks it; return False if the lease is over before that.

    Of several gangs with one image one starts the pull and all wait; the pull goes on when the lease ends. Raises
    PreparationFailed, OSError.
    """
    if is_here(launch):
        return True
    image, has_begun = launch["image"], False
    pull = Pull(image["root"], image["name"])
    with job_record(image["root"], launch["job_id"], lambda: {"ended": pull.newest()[0]}) as record:
        while not is_over():
            with locked(pull.path) as lock:
                if lock is not None:
                    ended, seconds, message = pull.newest()
                    if ended > record["ended"]:
                        record["ended"] = ended
                        _check(launch, message)
                        log.write(f"[image] {image['name']} is there after {seconds:.1f} s\n".encode())
                        return True
                    if has_begun:
                        raise OSError("the pull of its image was cut off")
                    log.write(f"[image] {image['name']} is pulled\n".encode())
                    start_detached(["-S"], "image_pull.py", [directory], lock)
                    has_begun = True
            time.sleep(POLL_S)
    return False


def is_here(launch: Mapping[str, Any]) -> bool:
    """Return whether the node has the image. Raises OSError."""
    tool = image_command(launch["image"]["command"])
    if is_apptainer(tool):
        return os.path.exists(image_path(launch["image"]))
    command = [*tool, "image", "exists", launch["image"]["name"]]
    try:
        done = subprocess.run(
            command,
            env=pull_environment(launch),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} did not answer within {ASK_LIMIT_S:g} s") from None
    return done.returncode == 0


def pull_environment(launch: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that Podman is run with: the search path, and what the job says of registry and proxies."""
    env = launch["ranks"][0]["env"]
    given = {name: env[name] for name in READ_FOR_PULLS if name in env}
    if is_apptainer(image_command(launch["image"]["command"])):
        root = launch["image"]["root"]
        given |= {"HOME": root, "APPTAINER_CACHEDIR": os.path.join(root, "cache")}
    return {**given, "PATH": SEARCH}


def _check(launch: Mapping[str, Any], message: str) -> None:
    name, node = launch["image"]["name"], launch["ranks"][0]["env"]["GAVEL_NODE"]
    if message:
        raise PreparationFailed(f"its image {name} could not be pulled on node {node}: {message}")
    if not is_here(launch):
        raise PreparationFailed(f"its image {name} was pulled, but is not on node {node}; see podman images there")
