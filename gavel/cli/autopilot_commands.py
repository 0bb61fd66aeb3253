"""Commands about the autopilot of a service: `gavel autopilot status|advise|set|pin|history|verify`."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from gavel.cli import completion, show
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.table import Rows
from gavel.client import Autopilot, AutopilotDecision, AutopilotVerification, CompositionScore

autopilot_commands = typer.Typer(
    help="Let the service choose its policy and other parts for a goal, or see what it would choose.",
    no_args_is_help=True,
)
app.add_typer(autopilot_commands, name="autopilot")

Number = Annotated[
    int, typer.Argument(metavar="DECISION", min=0, help="Its number, as `gavel autopilot history` has it.")
]


@autopilot_commands.command()
def status(as_json: Json = False) -> None:
    """Show which composition is in force and why, the next decision, and the regret against each composition."""
    with connect() as client:
        show.answer(client.autopilot(), as_json, _status)


@autopilot_commands.command()
def advise(as_json: Json = False) -> None:
    """Show what the newest decision says of each composition, and which one it chooses."""
    with connect() as client:
        newest = client.autopilot()["newest"]
    if newest is None:
        fail("the autopilot has made no decision yet; gavel autopilot status says what it waits for")
    show.answer(newest, as_json, decision)


@autopilot_commands.command("set")
def set_autopilot(
    *,
    mode: Annotated[
        str | None,
        typer.Option(help="off, advise, auto, or pin (see `gavel autopilot pin`).", autocompletion=completion.modes),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="What to make small: mean_jct, or mean_jct=2,money=1,longest_wait_s<=86400.",
            autocompletion=completion.measures,
        ),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help="A composition to choose from; repeatable, the first is the safe one.",
            autocompletion=completion.policies,
        ),
    ] = None,
    own_candidates: Annotated[bool, typer.Option("--own-candidates", help="Those of the autopilot again.")] = False,
    epoch: Annotated[float | None, typer.Option(help="Seconds from one decision to the next.")] = None,
    as_json: Json = False,
) -> None:
    """Set what the options name, and leave the rest as it is.

    gavel autopilot set --mode auto --goal mean_slowdown --candidate max_min_fairness --candidate fifo/backfill=false
    """
    if candidate and own_candidates:
        fail("--own-candidates: leave it out, or every --candidate")
    candidates = [] if own_candidates else candidate or None
    if all(each is None for each in (mode, goal, candidates, epoch)):
        fail("name what to set: --mode, --goal, --candidate, --own-candidates or --epoch")
    with connect() as client:
        answer = client.set_autopilot(mode=mode, goal=goal, candidates=candidates, epoch_s=epoch)
    show.answer(answer, as_json, show.operation)


@autopilot_commands.command()
def pin(
    composition: Annotated[
        str,
        typer.Argument(
            help="POLICY?parameter=value/PART=VALUE, as in fifo/backfill=false.", autocompletion=completion.compositions
        ),
    ],
    as_json: Json = False,
) -> None:
    """Put one composition in force, whatever the autopilot thinks, until the mode is changed."""
    with connect() as client:
        show.answer(client.set_autopilot(mode="pin", pinned=composition), as_json, show.operation)


@autopilot_commands.command()
def history(
    number: Annotated[int | None, typer.Argument(metavar="[DECISION]", min=0, help="Show one, whole.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """Show past decisions, newest first: what each chose and why, what it predicted, and what the epoch did cost."""
    with connect() as client:
        if number is not None:
            show.answer(client.autopilot_decision(number), as_json, decision)
            return
        show.answer(list(client.autopilot_decisions(limit=limit)), as_json, decisions)


@autopilot_commands.command()
def verify(number: Number, as_json: Json = False) -> None:
    """Make a decision again from its stored inputs; exit code 1 if anything is different."""
    with connect() as client, show.working():
        answer = client.verify_autopilot_decision(number)
    show.answer(answer, as_json, _verification)
    raise typer.Exit(int(not answer["same"]))


# --- output for people ------------------------------------------------------------------------------------------


def _status(autopilot: Autopilot) -> RenderableType:
    setting, newest = autopilot["setting"], autopilot["newest"]
    due = "" if autopilot["next_at_s"] is None else show.instant(autopilot["next_at_s"])
    facts: dict[str, str | Text] = {
        "mode": Text(setting["mode"], style="bold"),
        "goal": setting["goal"],
        "in force": autopilot["in_force"],
        "pinned": setting["pinned"],
        "candidates": "\n".join(autopilot["candidates"]),
        "newest decision": "" if newest is None else f"{newest['number']}, {show.instant(newest['at_s'])}",
        "next decision": ", ".join(filter(None, (due, autopilot["waits_for"]))),
        "failures in a row": str(autopilot["failures_in_a_row"] or ""),
        "CPU, last hour": f"{autopilot['cpu_s_last_hour']:.1f} s",
    }
    return Group(show.harmless(autopilot["sentence"]), show.grid(facts), *_regrets(autopilot))


def _regrets(autopilot: Autopilot) -> Iterable[Rows]:
    if not autopilot["regrets"]:
        return
    table = Rows(
        "COMPOSITION",
        "EPOCHS",
        "COST",
        "COST WITH IT",
        "REGRET",
        spare=("COST", "EPOCHS", "COST WITH IT"),
        long=("COMPOSITION",),
    )
    for each in autopilot["regrets"]:
        costs = (f"{each['actual']:.4g}", f"{each['replayed']:.4g}")
        table.add_row(each["composition"], str(each["epochs"]), *costs, f"{each['regret']:+.1%}")
    table.caption = "regret: what the epochs cost over what they would have cost with it; negative: they cost less"
    yield table


def decision(each: AutopilotDecision) -> RenderableType:
    """Return one decision with the score of each composition."""
    facts: dict[str, str | Text] = {
        "decision": f"{each['number']}, {show.instant(each['at_s'])}, mode {each['mode']}",
        "goal": each["goal"],
        "was in force": each["incumbent"],
        "chosen": Text(each["chosen"], style="bold"),
        "why": show.harmless(each["reason"]),
        "failure": show.harmless(each["failure"]),
        "followed": "yes" if each["is_followed"] else "no",
        "jobs": str(each["jobs"]),
        "cost of its epoch": _costs(each),
        "workload": ", ".join(f"{name} {value:.3g}" for name, value in each["features"].items()),
        "took": f"{each['cpu_s']:.1f} CPU s",
    }
    return Group(show.grid(facts), *([scores(each["scores"])] if each["scores"] else []))


def _costs(each: AutopilotDecision) -> str:
    """Return the predicted and the actual cost of its epoch, those that there are."""
    pairs = (("predicted", each["predicted"]), ("actual", each["actual"]))
    return ", ".join(f"{name} {cost:.4g}" for name, cost in pairs if cost is not None)


def scores(items: Iterable[CompositionScore]) -> Rows:
    """Return one line for each composition, with its gain over the one in force and two standard errors."""
    table = Rows(
        *("COMPOSITION", "GAIN", "±", "COST", "FUTURES", "LIMITS"),
        spare=("FUTURES", "COST", "LIMITS"),
        long=("COMPOSITION",),
    )
    for each in items:
        error = "" if each["error"] is None else f"{2 * each['error']:.1%}"
        limits = "kept" if each["keeps_limits"] else "broken"
        table.add_row(
            each["composition"], f"{each['gain']:+.1%}", error, f"{each['cost']:.3f}", str(each["futures"]), limits
        )
    table.caption = "±: two standard errors of the gain over the composition in force"
    return table


def decisions(items: Iterable[AutopilotDecision]) -> Rows:
    """Return one line for each decision."""
    table = Rows(
        *("NUMBER", "AT", "MODE", "CHOSEN", "FOLLOWED", "PREDICTED", "ACTUAL", "WHY"),
        spare=("MODE", "PREDICTED", "ACTUAL", "FOLLOWED"),
        long=("CHOSEN", "WHY"),
    )
    for each in items:
        costs = ("" if cost is None else f"{cost:.3g}" for cost in (each["predicted"], each["actual"]))
        why = f"failed: {each['failure']}" if each["failure"] else each["reason"]
        followed = "yes" if each["is_followed"] else "no"
        at = show.instant(each["at_s"])
        table.add_row(str(each["number"]), at, each["mode"], each["chosen"], followed, *costs, show.harmless(why))
    return table


def _verification(answer: AutopilotVerification) -> str:
    if answer["same"]:
        return f"decision {answer['number']}, made again from its stored inputs, is the same"
    return f"decision {answer['number']}, made again, differs in {', '.join(answer['differences'])}"
