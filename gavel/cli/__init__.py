"""The command line: `gavel serve`, `gavel submit train.py --steps 5000`, `gavel jobs`, .. (`gavel --help`).

Exit codes: 0 done, 2 refused or no answer; of `submit --wait` the job's own (128 + signal; 1: cancelled).
What is slow to import is imported by the command that needs it, so that `--help` is quick.
"""

import sys

from gavel.cli import (
    admin,
    db,
    jobs,
    live,
    nodes,
    observe,
    overview,
    profile,
    replay,
    resources,
    service,
    simulate,
    why,
)
from gavel.cli.connection import app, explain
from gavel.cli.panels import arrange
from gavel.client import GavelApiError, ServiceUnreachable

__all__ = [
    "admin",
    "app",
    "db",
    "jobs",
    "live",
    "main",
    "nodes",
    "observe",
    "overview",
    "profile",
    "replay",
    "resources",
    "service",
    "simulate",
    "why",
]

arrange(app)


def main() -> None:
    """Run one command; what the service refuses becomes a line on stderr and exit code 2."""
    try:
        app()
    except (GavelApiError, ServiceUnreachable) as error:
        print(f"gavel: {explain(error)}", file=sys.stderr)
        sys.exit(2)
