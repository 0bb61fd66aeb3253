"""The command line: `gavel serve`, `gavel job submit --steps 5000 train.py`, `gavel job list`, .. (`gavel --help`).

A thing with a name or an id is a group, by its singular noun, with a verb: `gavel tier set`, `gavel round show`.
A question about the whole service is one word: `gavel queue`, `gavel top`. So are the two commands that users type
most: `gavel submit` is `gavel job submit`, `gavel download` is `gavel job download`.

Exit codes: 0 done, 2 refused or no answer; of `job submit --wait` the job's own (128 + signal; 1: cancelled).
What is slow to import is imported by the command that needs it, so that `--help` is quick.
"""

import sys

from gavel.cli import (
    admin,
    autopilot_commands,
    changing,
    db,
    doctor,
    infeasible,
    init,
    jobs,
    kubernetes,
    live,
    nodes,
    notifications,
    observe,
    overview,
    profile,
    purging,
    resources,
    resubmit,
    results,
    rounds,
    run,
    search_priority,
    secrets,
    service,
    services,
    sessions,
    simulate,
    suite,
    why,
)
from gavel.cli.connection import app, explain
from gavel.cli.panels import arrange
from gavel.client import GavelApiError, ServiceUnreachable

__all__ = [
    "admin",
    "app",
    "autopilot_commands",
    "changing",
    "db",
    "doctor",
    "infeasible",
    "init",
    "jobs",
    "kubernetes",
    "live",
    "main",
    "nodes",
    "notifications",
    "observe",
    "overview",
    "profile",
    "purging",
    "resources",
    "resubmit",
    "results",
    "rounds",
    "run",
    "search_priority",
    "secrets",
    "service",
    "services",
    "sessions",
    "simulate",
    "suite",
    "why",
]

arrange(app)


def main() -> None:
    """Run one command. A refusal of the service is printed on stderr, with exit code 2."""
    try:
        app()
    except (GavelApiError, ServiceUnreachable) as error:
        print(f"gavel: {explain(error)}", file=sys.stderr)
        sys.exit(2)
