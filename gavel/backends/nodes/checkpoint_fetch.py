"""The checkpoints that a gang begins with, brought to its node: the accepted one, and the one before if it asks."""

import json
from contextlib import suppress
from pathlib import Path

from gavel.backends.checkpoint_retention import CHECKPOINT, older_ones
from gavel.backends.durable import write_durable
from gavel.backends.gang import GangKey
from gavel.backends.gang_files import job_files
from gavel.backends.launch import Places
from gavel.backends.machine import read_object
from gavel.backends.nodes.protocol import ShardLaunch
from gavel.backends.nodes.transfers import RemoteCheckpoints, Transfers, is_url

WANTED = "previous.wanted"
FAILED = "previous.failed"
PREVIOUS = "previous.json"


class CheckpointFetch:
    """Fetches below `url` what the gang `key` begins with, into the folder `checkpoints` of its job on this node.

    `gang` is the gang's directory, `accepted` the name of the checkpoint.
    """

    def __init__(
        self, key: GangKey, accepted: str, *, url: str, checkpoints: Path, gang: Path, transfers: Transfers
    ) -> None:
        self._key, self._accepted, self._url = key, accepted, url
        self._checkpoints, self._gang, self._transfers = checkpoints, gang, transfers

    def is_here(self) -> bool:
        """Return True once the accepted checkpoint is here, and the name of the one before. Raises any exception."""
        return self._transfers.done((*self._key, "fetch", self._accepted), self._fetch)

    def previous(self) -> Path | None:
        """Return where the checkpoint before the accepted one is, or would be; None if there is none."""
        name = str((read_object(self._gang / PREVIOUS) or {}).get("name"))
        return self._checkpoints / name if CHECKPOINT.fullmatch(name) else None

    def look(self) -> None:
        """Fetch the checkpoint before if the job asks for it, in the background; note if it cannot be."""
        path = self.previous()
        if path is None or not (job_files(self._gang) / WANTED).exists() or path.is_dir():
            return
        try:
            self._transfers.done(
                (*self._key, "fetch", path.name), lambda: RemoteCheckpoints(self._url).fetch(self._key[0], path)
            )
        except Exception as problem:  # of whichever storage this is
            with suppress(OSError):  # the disk is full: the job waits to its limit
                write_durable(self._gang / FAILED, str(problem).encode())
                (self._gang / FAILED).chmod(0o640)  # the job's user is the group of the gang's folder, if it has one

    def _fetch(self) -> None:
        remote = RemoteCheckpoints(self._url)
        before = older_ones(remote.names(self._key[0]), self._accepted)
        write_durable(self._gang / PREVIOUS, json.dumps({"name": before[-1] if before else ""}).encode())
        if not (self._checkpoints / self._accepted).is_dir():
            remote.fetch(self._key[0], self._checkpoints / self._accepted)


def fetch_of(launch: ShardLaunch, places: Places, transfers: Transfers) -> CheckpointFetch | None:
    """Return how the gang's checkpoint comes to this node; None if it is there, or the gang begins without one."""
    accepted, url = launch.instruction.checkpoint, launch.checkpoints
    if accepted is None or not is_url(url):
        return None
    return CheckpointFetch(
        launch.key, accepted, url=url, checkpoints=places.checkpoints, gang=places.gang, transfers=transfers
    )
