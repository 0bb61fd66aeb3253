"""Commands that show the cluster at a glance: summary, queue, placements, shares."""

from typing import Annotated

import typer
from rich.text import Text

from gavel.cli import show
from gavel.cli.connection import Json, app, connect
from gavel.cli.resolving import OneJob
from gavel.cli.table import Rows
from gavel.client import Placements, Queue, Shares, Summary
from gavel.client.answers import Fallback

Rounds = Annotated[int, typer.Option(min=1, max=200, help="How many rounds to look back.")]


@app.command()
def summary(as_json: Json = False) -> None:
    """Show the cluster at a glance: round, solver, jobs by state and tier, and what is wrong."""
    with connect() as client:
        show.answer(client.summary(), as_json, lambda answer: show.grid(facts(answer)))


@app.command()
def queue(
    tier: Annotated[str | None, typer.Option(help="Of this tier only.")] = None,
    start: Annotated[int, typer.Option(min=0, help="Leave so many out.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show at most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """Show the waiting jobs, tier by tier in the order in which they start, and why they wait."""
    with connect() as client:
        show.answer(client.queue(tier=tier, start=start, limit=limit), as_json, queue_table)


@app.command()
def placements(
    rounds: Rounds = 40,
    node: Annotated[str | None, typer.Option(help="Of this node's workers.")] = None,
    job: OneJob = None,
    as_json: Json = False,
) -> None:
    """Show which job held which worker in the last rounds."""
    with connect() as client:
        show.answer(client.placements(rounds=rounds, node=node, job_id=job), as_json, placement_table)


@app.command()
def shares(rounds: Rounds = 40, as_json: Json = False) -> None:
    """Show the part of all workers that each tier held in the last rounds."""
    with connect() as client:
        show.answer(client.shares(rounds=rounds), as_json, share_table)


def facts(summary: Summary) -> dict[str, str]:
    """Return the facts about the cluster, by their titles."""
    round_, solve, worst = summary["round"], summary["solve"], summary["worst"]
    return {
        "round": f"{round_['round_index']}, {round_['policy']}, {round_['leases']} leases" if round_ else "none yet",
        "solved": f"{solve['solver_outcome']} by {solve['solver']} in {solve['solve_time_s']:.3f} s" if solve else "",
        "fallback": _fallback(solve["fallback"]) if solve and solve["fallback"] else "",
        "workers": f"{summary['busy_workers']} of {summary['workers']} busy",
        "jobs": _counted(summary["jobs"]) or "none unfinished",
        "tiers": _counted(summary["tiers"]),
        "largest rho": f"{worst['rho']:.2f}  {worst['id']}  {worst['name']}" if worst else "",
        "notes": show.harmless("\n".join(summary["notes"])),
    }


def _fallback(why: Fallback) -> str:
    """Return the fallback in a few words. The details are in the notes."""
    return f"{why['instead']}: {show.harmless(why['policy'])} fails since {show.instant(why['since_s'])}"


def queue_table(queue: Queue) -> Rows | Text:
    """Return one line per waiting job."""
    if not queue["items"]:
        return Text("nobody waits", style="dim")
    table = Rows(
        *("#", "JOB", "NAME", "TIER", "USER", "STATE", "WAITS SINCE", "REASON"),
        spare=("WAITS SINCE", "USER", "NAME", "STATE"),
        long=("REASON",),
    )
    for each in queue["items"]:
        why = show.harmless(each["message"])
        row = (each["name"], each["tier"], each["user"], each["state"], show.instant(each["submitted_at_s"]), why)
        table.add_row("next" if each["position"] is None else str(each["position"]), each["id"], *row)
    if left := queue["waiting"] - len(queue["items"]):
        table.caption = f"{left} more wait; see --start"
    return table


def placement_table(placements: Placements) -> Rows:
    """Return one line per job and worker."""
    table = Rows("WORKER", "TYPE", "JOB", "NAME", "TIER", "ROUNDS", spare=("TIER", "NAME", "TYPE"))
    for each in placements["blocks"]:
        holder = (each["job_id"] or show.OTHERS, each["name"], each["tier"])
        first, last = each["first_round"], each["last_round"]
        span = str(first) if first == last else f"{first}-{last}"
        table.add_row(each["worker_id"], each["accelerator_type"], *holder, span)
    if left := placements["workers"] - len(placements["worker_ids"]):
        table.caption = f"{left} workers are not shown; see --node"
    return table


def share_table(shares: Shares) -> Rows:
    """Return one line per tier: its part in the newest round, on average, and as a row of bars."""
    table = Rows("TIER", "NOW", "AVERAGE", "OVER THE ROUNDS", spare=("OVER THE ROUNDS",))
    for tier, parts in shares["tiers"].items():
        average = sum(parts) / len(parts) if parts else 0.0
        table.add_row(tier, f"{parts[-1]:.0%}" if parts else "", f"{average:.0%}", bars(parts))
    return table


def bars(parts: list[float]) -> str:
    """Return one block character for each part between 0 and 1."""
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(part * 8))] for part in parts)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
