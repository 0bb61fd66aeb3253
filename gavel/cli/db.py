"""Commands for administrators of the database: backup, check, upgrade. They need no running service."""

from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.connection import app, refusals, settings

db = typer.Typer(help="Back up, check or upgrade the database.", no_args_is_help=True)
app.add_typer(db, name="db")

Url = Annotated[
    str | None, typer.Option("--database-url", help="Default: GAVEL_DATABASE_URL, else SQLite in the state folder.")
]


@db.command()
def backup(path: Annotated[Path, typer.Argument(help="A new file.")], url: Url = None) -> None:
    """Copy a SQLite database, also while the service runs, and check the copy."""
    from gavel.store import maintenance

    with refusals():
        report = maintenance.backup(settings(database_url=url).url, path)
    _tell(f"{path} holds", report.jobs, report.rounds, report.faults)


@db.command()
def check(url: Url = None) -> None:
    """Read all that is stored, without changing it; exit code 1 if anything is wrong."""
    from gavel.store import maintenance

    with refusals():
        report = maintenance.check(settings(database_url=url).url)
    _tell(f"revision {report.revision}:", report.jobs, report.rounds, report.faults)


@db.command()
def upgrade(url: Url = None) -> None:
    """Upgrade the tables to this version of Gavel, as `gavel serve` does when it starts. Back up first."""
    from gavel.store import maintenance

    with refusals():
        before, after = maintenance.upgrade(settings(database_url=url).url)
    typer.echo(f"at revision {after} already" if before == after else f"from revision {before or 'none'} to {after}")


def _tell(what: str, jobs: int, rounds: int, faults: tuple[str, ...]) -> None:
    typer.echo(f"{what} {jobs} jobs, {rounds} rounds, {len(faults)} faults")
    for fault in faults:
        typer.echo(fault, err=True)
    raise typer.Exit(int(bool(faults)))
