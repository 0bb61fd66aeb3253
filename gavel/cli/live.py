"""Commands that run until they are left: `gavel top` shows the cluster, `gavel watch` prints events."""

import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gavel.cli import show
from gavel.cli.connection import Json, app, connect
from gavel.cli.overview import facts, queue_table
from gavel.client import Client, GavelApiError, Job, Queue, ServiceUnreachable, Summary, WatchEvent

ROWS_ELSEWHERE = 14  # lines of a screen that do not show single jobs
REDRAW_S = 0.3  # seconds: the shortest time between two requests
LOOK_ANYWAY_S = 15.0  # seconds: the longest time between two requests
HINT = "q or Ctrl-C: leave"

After = Annotated[
    int | None, typer.Option(min=0, help="Follow from this position, which --json prints; default: from now on.")
]


@app.command()
def top(
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two requests where no events arrive.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the cluster: which jobs run where, which wait and why. Leave with q or Ctrl-C.

    gavel top --once --json
    """
    console = Console(highlight=False, markup=False, emoji=False)
    with connect() as client:
        if once or as_json:
            show.answer(seen(client, 50), as_json, screen)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live, _keys(), until_left():
            waiter = EventWaiter()
            while True:
                live.update(_frame(client, max(4, console.height - ROWS_ELSEWHERE)), refresh=True)
                if waiter.key_before_the_next(every) in {"q", "Q"}:
                    return


@app.command()
def watch(after: After = None, as_json: Json = False) -> None:
    """Print events, one per line, until Ctrl-C: your jobs, and rounds; for operators everything.

    It goes on where it was when the service is started again. With --json it prints one JSON object per line.
    """
    with connect() as client, until_left():
        for event in client.watch(after):
            typer.echo(json.dumps(event, ensure_ascii=False) if as_json else show.harmless(event_line(event)))


def seen(client: Client, rows: int) -> dict[str, Any]:
    """Return what a screen shows: the summary, running jobs, and as many waiting ones as fit."""
    running = [job for state in ("RUNNING", "PROFILING") for job in client.jobs(state=state, limit=rows)][:rows]
    waiting = client.queue(limit=max(1, min(200, rows - len(running))))
    return {"at_s": time.time(), "summary": client.summary(), "running": running, "queue": waiting}


def screen(state: dict[str, Any]) -> RenderableType:
    """Return the screen: the summary, then running jobs, then waiting ones."""
    summary: Summary = state["summary"]
    running: list[Job] = state["running"]
    waiting: Queue = state["queue"]
    parts: list[RenderableType] = [Text(f"gavel top  {show.instant(state['at_s'])}", style="bold")]
    parts += [show.grid(facts(summary)), Text()]
    parts.append(show.jobs(running) if running else Text("nothing runs", style="dim"))
    parts.append(Text())
    parts.append(queue_table(waiting))
    return Group(*parts)


def event_line(event: WatchEvent) -> str:
    """Return one line about an event."""
    about = event["data"]
    match event["event"]:
        case "job":
            why = about["message"]
            what = f"{about['id']}  {about['state']}  {about['name']}  {why}"
        case "round":
            what = f"{about['round_index']}  {about['policy']}  {len(about['leases'])} leases"
        case "allocation":
            what = f"{about['round_index']}  {about['solver_outcome']} in {about['solve_time_s']:.3f} s"
        case _:
            what = f"position {event['position']}"
    return f"{event['event']}  {what}".rstrip()


def _frame(client: Client, rows: int) -> RenderableType:
    """Return a screen; while the service does not answer, a line that says so."""
    try:
        return Group(screen(seen(client, rows)), Text(), Text(HINT, style="dim"))
    except (GavelApiError, ServiceUnreachable) as error:
        if isinstance(error, GavelApiError) and error.status < 500:
            raise
        return Group(Text(f"{error}; looking again", style="bold red"), Text(HINT, style="dim"))


@contextmanager
def until_left() -> Iterator[None]:
    """End the command without an error on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


class EventWaiter:
    """Waits for events, which a thread of its own follows, and for keys that are pressed."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._is_followed = False
        self._keys = select.poll()
        self._keys_and_events = select.poll()
        self._keys_and_events.register(self._reader, select.POLLIN)
        if sys.stdin.isatty():
            for each in (self._keys, self._keys_and_events):
                each.register(sys.stdin.fileno(), select.POLLIN)
        threading.Thread(target=self._follow, daemon=True).start()

    def key_before_the_next(self, every_s: float) -> str:
        """Wait for an event, or `every_s` seconds if none arrive. Return the key pressed, or an empty text."""
        if self._keys.poll(min(REDRAW_S, every_s) * 1000):
            return sys.stdin.read(1)
        longest_s = max(every_s, LOOK_ANYWAY_S) if self._is_followed else every_s
        ready = {descriptor for descriptor, _ in self._keys_and_events.poll(longest_s * 1000)}
        if self._reader in ready:
            os.read(self._reader, 65_536)
        return sys.stdin.read(1) if ready - {self._reader} else ""

    def _follow(self) -> None:
        """Signal each event. End only for a token that may not follow events."""
        while True:
            try:
                with connect() as client:
                    for _ in client.watch(kinds=["changed"]):
                        self._is_followed = True
                        os.write(self._writer, b".")
            except (GavelApiError, ServiceUnreachable) as error:
                self._is_followed = False
                if isinstance(error, GavelApiError) and error.status in (401, 403):
                    return
            time.sleep(LOOK_ANYWAY_S)


@contextmanager
def _keys() -> Iterator[None]:
    """Let the terminal pass on each key at once, without waiting for the end of the line."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
