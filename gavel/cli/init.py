"""The command `gavel init SCRIPT`: names a script's training library and prints the patch that makes it preemptible."""

from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.connection import app, fail
from gavel.cli.framework import GUIDE, advice_for, patch


@app.command()
def init(script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A training script in Python.")]) -> None:
    """Print the patch that makes a script preemptible, or say what to add. The script is read, not run or changed.

    gavel init train.py | patch -p1
    """
    try:
        text = script.read_text(encoding="utf-8")
        advice = advice_for(text)
    except OSError as error:
        fail(f"{script}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{script}: it is no text in UTF-8")
    except SyntaxError as error:
        fail(f"{script}: line {error.lineno}: {error.msg}")
    typer.echo(f"{script} uses {advice.framework}", err=True)
    if advice.changed is None:
        typer.echo(f"{advice.hint}\n{GUIDE} shows it in whole scripts")
    else:
        typer.echo(patch(_from_here(script), text, advice.changed), nl=False)


def _from_here(script: Path) -> str:
    """Return the path as `patch -p1` takes it in this folder."""
    here, whole = Path.cwd(), script.absolute()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else script)
