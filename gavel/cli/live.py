"""Commands that stay: `gavel top`, the cluster as it changes, and `gavel watch`, what happens as it happens."""

import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gavel.cli import show
from gavel.cli.connection import Json, app, connect
from gavel.cli.overview import facts, queue_table
from gavel.client import Client, GavelApiError, Job, LiveEvent, Queue, ServiceUnreachable, Summary

ROWS_ELSEWHERE = 14  # lines of a screen that are not about single jobs
HINT = "q or Ctrl-C: leave"

After = Annotated[int | None, typer.Option(min=0, help="A position that --json told; default: from now on.")]


@app.command()
def top(
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the cluster: who runs where, who waits and why. Leave with q or Ctrl-C.

    gavel top --once --json
    """
    console = Console(highlight=False, markup=False, emoji=False)
    with connect() as client:
        if once or as_json:
            show.answer(seen(client, 50), as_json, screen)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live, keys() as key_within, _until_left():
            while True:
                live.update(_frame(client, max(4, console.height - ROWS_ELSEWHERE)), refresh=True)
                if key_within(every) in {"q", "Q"}:
                    return


@app.command()
def watch(after: After = None, as_json: Json = False) -> None:
    """Print what happens, a line each, until Ctrl-C: your jobs, and rounds; for operators everything.

    It goes on where it was when the service is started again; --json prints a JSON object a line.
    """
    with connect() as client, _until_left():
        for event in client.follow_events(after):
            typer.echo(json.dumps(event, ensure_ascii=False) if as_json else show.harmless(told(event)))


def seen(client: Client, rows: int) -> dict[str, Any]:
    """What a screen shows: the summary, jobs that run, and as many waiting ones as there is room for."""
    running = [job for state in ("RUNNING", "PROFILING") for job in client.jobs(state=state, limit=rows)][:rows]
    waiting = client.queue(limit=max(1, min(200, rows - len(running))))
    return {"at_s": time.time(), "summary": client.summary(), "running": running, "queue": waiting}


def screen(found: dict[str, Any]) -> RenderableType:
    """The summary above, then who runs, then who waits."""
    summary: Summary = found["summary"]
    running: list[Job] = found["running"]
    waiting: Queue = found["queue"]
    parts: list[RenderableType] = [Text(f"gavel top  {show.instant(found['at_s'])}", style="bold")]
    parts += [show.grid(facts(summary)), Text()]
    parts.append(show.jobs(running) if running else Text("nothing runs", style="dim"))
    parts.append(Text())
    parts.append(queue_table(waiting))
    return Group(*parts)


def told(event: LiveEvent) -> str:
    """One line about an event."""
    about = event["data"]
    match event["event"]:
        case "job":
            why = about["message"] or about["reason"]
            what = f"{about['id']}  {about['state']}  {about['name']}  {why}"
        case "round":
            what = f"{about['round_index']}  {about['policy']}  {len(about['leases'])} leases"
        case "allocation":
            what = f"{about['round_index']}  {about['solver_outcome']} in {about['solve_time_s']:.3f} s"
        case _:
            what = f"position {event['position']}"
    return f"{event['event']}  {what}".rstrip()


def _frame(client: Client, rows: int) -> RenderableType:
    """A screen; while the service is away, that it is."""
    try:
        return Group(screen(seen(client, rows)), Text(), Text(HINT, style="dim"))
    except ServiceUnreachable as error:
        return Group(Text(f"{error}; looking again", style="bold red"), Text(HINT, style="dim"))
    except GavelApiError as error:
        if error.status < 500:
            raise
        return Group(Text(f"{error}; looking again", style="bold red"), Text(HINT, style="dim"))


@contextmanager
def _until_left() -> Iterator[None]:
    """Ctrl-C is how one leaves, and no error."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Gives a function that waits so many seconds for a key, and returns it; empty: none came."""
    if not sys.stdin.isatty():
        yield _nobody_types
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield _key_within
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key_within(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


def _nobody_types(seconds: float) -> str:
    time.sleep(seconds)
    return ""
