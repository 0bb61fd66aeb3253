"""Makes ready what the ranks of a gang need on a node. Standard library only: a part of the supervisor."""

import os
import time
from collections.abc import Callable
from typing import Any

from gavel.backends.gang_lease import Lease
from gavel.backends.machine import GO, READY, boottime_s, write_json
from gavel.backends.output import Log
from gavel.backends.sandbox_view import refusal
from gavel.backends.unix_users import lend, uid_of

POLL_S = 0.05


class Readiness:
    """Makes ready what `launch` asks for. If the ranks cannot start, one of the three texts says why.

    `lost`: this node is at fault; `not_started`: the job is; `too_late`: its lease was over.
    """

    def __init__(self, launch: dict[str, Any], directory: str, lease: Lease, log: Log) -> None:
        self._launch, self._directory, self._lease, self._log = launch, directory, lease, log
        self.lost = ""
        self.not_started = ""
        self.too_late = "its lease was over before it started"

    def reach(self) -> bool:
        """1 copy the code, 2 check what the job names, 3 wait for what it brings, 4 wait for the other nodes.

        Return whether the ranks can start. Changes the launch, as it is then written again.
        """
        self._copy_code()
        self._lend_checkpoint()
        is_ready = not self.lost and self._may_start() and self._has_all() and self._await_nodes()
        return is_ready and not self._lease.check()

    def _copy_code(self) -> None:
        """Make the job's copy of its code. Where that fails the disk is at fault, so the gang counts as lost."""
        code = self._launch.get("code")
        if not code:
            return
        from gavel.backends.code_copy import copy_code  # it loads more than a supervisor needs otherwise

        try:
            copy_code(code["store"], code["digest"], code["copy"], self._directory, uid_of(self._launch))
        except OSError as problem:
            self.lost = f"cannot copy its code: {problem}"

    def _lend_checkpoint(self) -> None:
        """Let the job's user read the checkpoint of another job, which is in FOLDER/JOB/NAME."""
        try:
            for copy in self._launch.get("lent", ()):
                lend(copy, uid_of(self._launch), os.path.dirname(os.path.dirname(copy)))
        except OSError as problem:
            self.lost = f"its user cannot be given the checkpoint that it begins with: {problem}"

    def _may_start(self) -> bool:
        """Return whether what runs the program is on the node, and it may have the folders that it names."""
        self.not_started = refusal(self._launch)
        return not self.not_started and self._has_interpreter()

    def _has_interpreter(self) -> bool:
        python = self._launch.get("python", "")
        if python and not os.access(python, os.X_OK):
            node = self._launch["ranks"][0]["env"]["GAVEL_NODE"]
            self.not_started = (
                f"the interpreter {python} is not on node {node}, or the service's user may not run it there;"
                " name one that it may (--python)"
            )
        if self._launch.get("image"):
            from gavel.backends.containers import missing_command

            self.not_started = missing_command(self._launch)
        return not self.not_started

    def _has_all(self) -> bool:
        """Have image, environment and inputs of the job made ready; return whether they are."""
        is_ready = True
        if self._launch.get("image"):
            from gavel.backends.images import wait_for_image

            is_ready = self._has_waited("image", "was pulled", wait_for_image)
        if is_ready and self._launch.get("setup"):
            from gavel.backends.environments import wait_for_environment

            is_ready = self._has_waited("setup", "ran", wait_for_environment)
        if is_ready and self._launch.get("data"):
            from gavel.backends.inputs import wait_for_inputs

            is_ready = self._has_waited("input", "was fetched", wait_for_inputs)
        return is_ready

    def _has_waited(self, what: str, did: str, wait: Callable[..., bool]) -> bool:
        """Wait for what the job needs on the node; return whether it is there."""
        from gavel.backends.preparation import PreparationFailed

        try:
            is_there = wait(self._launch, self._directory, self._log, lambda: bool(self._lease.check()))
            if not is_there:
                self.too_late = f"its lease ended while its {what} {did}, which goes on"
            write_json(os.path.join(self._directory, "launch.json"), self._launch)  # tasks of the gang have it, too
            return is_there
        except PreparationFailed as problem:
            self.not_started = str(problem)
        except OSError as problem:
            self.lost = f"its {what} was lost: {problem}"
        return False

    def _await_nodes(self) -> bool:
        """Say that this node is ready, and wait for the others of the gang: ranks wait for each other only briefly."""
        if not self._launch.get("awaits_nodes"):
            return True
        write_json(os.path.join(self._directory, READY), {"boottime_s": boottime_s()})
        while not os.path.exists(os.path.join(self._directory, GO)):
            if self._lease.check():
                self.too_late = "its lease ended while another of its nodes was made ready"
                return False
            time.sleep(POLL_S)
        return True
