"""When an interactive session of this machine was last used: by the times of two files, which survive a restart."""

from pathlib import Path

from gavel.backends.folder import log_path
from gavel.types import JobId

CONNECTED = "connected"  # of a gang: touched while somebody is connected to one of its ports


def connected_file(state_dir: Path, job_id: JobId, generation: int) -> Path:
    """Return the file that is touched while somebody is connected to the session."""
    return state_dir / "gangs" / job_id / str(generation) / CONNECTED


def note_connection(state_dir: Path, job_id: JobId, generation: int) -> None:
    """Remember that somebody is connected to the session now. Raises OSError, also once the gang is forgotten."""
    connected_file(state_dir, job_id, generation).touch(mode=0o600)


def last_use_s(state_dir: Path, job_id: JobId, generation: int) -> float:
    """Return when somebody was last connected to the session or it last printed something, Unix time; 0: never."""
    files = (log_path(state_dir, job_id), connected_file(state_dir, job_id, generation))
    return max(_changed_at_s(each) for each in files)


def _changed_at_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
