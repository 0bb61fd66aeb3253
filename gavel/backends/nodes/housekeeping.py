"""What a node deletes once an hour: code, environments and folders of jobs that nothing on it has used for long."""

import sys
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gavel.backends.code_store import CodeStore
from gavel.backends.environments import clear_environments
from gavel.backends.folder import environments_dir, inputs_dir
from gavel.backends.nodes.output_sync import clear_outputs
from gavel.backends.preparation import forget_jobs
from gavel.types import JobId

OUTPUTS_KEPT_S = 3600.0


class Housekeeping:
    """Clears the folders of a node in a thread of its own, so that no lease waits for it."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._timer = CodeStore(state_dir, limit_bytes=sys.maxsize, kept_s=0.0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gavel-housekeeping")
        self._running: Future[None] | None = None

    def clear_if_due(self, live: Mapping[JobId, Collection[str]], kept_s: float) -> None:
        """Delete what no live gang uses and nobody has used for `kept_s`; `live` has the code versions of each job."""
        if self._timer.is_clear_due() and (self._running is None or self._running.done()):
            self._running = self._thread.submit(clear, self._state_dir, live, kept_s)

    def close(self) -> None:
        """Begin nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def clear(state_dir: Path, live: Mapping[JobId, Collection[str]], kept_s: float) -> None:
    """Delete what a node keeps for jobs, as `Housekeeping` does. Raises OSError."""
    CodeStore(state_dir, limit_bytes=sys.maxsize, kept_s=kept_s).clear(live)
    before_s = time.time() - kept_s
    clear_environments(str(environments_dir(state_dir)), live, before_s)
    forget_jobs(str(inputs_dir(state_dir)), live, before_s)
    forget_jobs(str(state_dir / "images"), live, before_s)
    clear_outputs(state_dir / "outputs", live, time.time() - OUTPUTS_KEPT_S)
