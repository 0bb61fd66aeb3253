"""Commands that answer why and what if: `gavel job explain`, `calibration`, `what-if`, `tier preview`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, cast

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from gavel.cli import completion, show
from gavel.cli.admin import tier_commands
from gavel.cli.connection import Json, app, connect, fail
from gavel.cli.jobs import job_commands
from gavel.cli.needs import plan_table
from gavel.cli.resolving import JobId
from gavel.cli.table import Rows
from gavel.client import Calibration, Effects, Explanation, JobSubmit, NodesAdded, Tier, TierPreview, TierPut

Added = Annotated[
    list[str] | None, typer.Option("--add", metavar="TYPE:WORKERS[:NODES]", help="Nodes more; repeatable.")
]
Weights = Annotated[list[str] | None, typer.Option("--weight", metavar="TIER=WEIGHT", help="Repeatable.")]


@job_commands.command()
def explain(
    job: JobId,
    numbers: Annotated[bool, typer.Option("--numbers", help="With the figures behind the sentence.")] = False,
    as_json: Json = False,
) -> None:
    """Show in a sentence or two why a job does not run, when it starts or ends, and what would help."""
    with connect() as client:
        show.answer(client.explain(job), as_json, lambda explanation: _explained(explanation, numbers))


@app.command()
def calibration(as_json: Json = False) -> None:
    """Show how many of the last jobs ended within the interval that was predicted at their submission."""
    with connect() as client:
        show.answer(client.calibration(), as_json, _calibration)


@app.command("what-if")
def what_if(  # noqa: PLR0913  one option per thing to try
    *,
    policy: Annotated[str | None, typer.Option(help="Another policy, with ?parameters.")] = None,
    weight: Weights = None,
    add: Added = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="NODE", help="A node less; repeatable.")] = None,
    kind: Annotated[str | None, typer.Option(help="One more job, of this kind; needs --steps.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of that job.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Workers of that job.")] = 1,
    tier: Annotated[str | None, typer.Option(help="Tier of that job.")] = None,
    as_json: Json = False,
) -> None:
    """Try a change on the live state, in a process of its own, and change nothing.

    gavel what-if --policy max_min_fairness --weight gold=3 --add a100:8:2 --remove node-3
    """
    if (kind is None) != (steps is None):
        fail("one more job needs --kind and --steps")
    job = JobSubmit(kind=kind, total_steps=steps, scale_factor=workers, tier=tier) if kind and steps else None
    with connect() as client:
        stored = {each["name"]: each for each in client.tiers()} if weight else {}
        tiers = [_reweighted(text, stored) for text in weight or ()]
        nodes = [_nodes(text) for text in add or ()]
        with show.working():
            answer = client.what_if(policy=policy, tiers=tiers, nodes_added=nodes, nodes_gone=remove or (), job=job)
    show.answer(answer, as_json, effects)


@tier_commands.command("preview")
def preview_tier(
    name: Annotated[
        str, typer.Argument(metavar="TIER", help="Its name; a new one is tried too.", autocompletion=completion.tiers)
    ],
    *,
    weight: Annotated[float | None, typer.Option(help="Share of the cluster, relative to the other tiers.")] = None,
    objective: Annotated[str | None, typer.Option(help="Objective inside the tier.")] = None,
    within_user: Annotated[str | None, typer.Option(help="How one user's jobs share in a fairness tier.")] = None,
    guarantee: Annotated[float | None, typer.Option(help="Fraction of every type it can always reach.")] = None,
    cap: Annotated[float | None, typer.Option(help="Fraction of every type it does not exceed over time.")] = None,
    parent: Annotated[str | None, typer.Option(help="The tier that it is below; '' for none.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a change of a tier would do to every tier and job, and change nothing."""
    named = {"weight": weight, "objective": objective, "within_user": within_user, "guarantee": guarantee, "cap": cap}
    changed = cast(TierPut, {field: value for field, value in named.items() if value is not None})
    with connect() as client:
        stored = next((each for each in client.tiers() if each["name"] == name), None)
        rules: TierPut = _rules(stored) if stored else {}
        if parent is not None:
            rules["parent"] = parent or None
        with show.working():
            answer = client.preview_tier(name, **rules | changed)
    show.answer(answer, as_json, effects)


def _rules(tier: Tier) -> TierPut:
    """Return the rules of a tier, as a change states them."""
    return cast(TierPut, {field: value for field, value in tier.items() if field not in ("name", "version")})


def _reweighted(text: str, stored: Mapping[str, Tier]) -> TierPreview:
    name, _, weight = text.partition("=")
    if name not in stored:
        fail(f"--weight {text}: there is no tier {name}; there are {', '.join(stored)}")
    try:
        return {**_rules(stored[name]), "name": name, "weight": float(weight)}
    except ValueError:
        fail(f"--weight {text}: give TIER=WEIGHT, as in gold=3")


def _nodes(text: str) -> NodesAdded:
    name, *numbers = text.split(":")
    if len(numbers) not in (1, 2) or not all(number.isdigit() for number in numbers):
        fail(f"--add {text}: give TYPE:WORKERS or TYPE:WORKERS:NODES, as in a100:8:2")
    return {"accelerator_type": name, "workers": int(numbers[0]), "count": int(numbers[1]) if len(numbers) > 1 else 1}


# --- output for people ------------------------------------------------------------------------------------------


def _explained(explanation: Explanation, numbers: bool) -> RenderableType:
    helps = {
        "what helps": "\n".join(show.harmless(each) for each in explanation["would_unblock"]),
        "plan": show.harmless(explanation["plan_reason"]),
    }
    return Group(show.harmless(explanation["sentence"]), show.grid(helps | (facts(explanation) if numbers else {})))


def facts(explanation: Explanation) -> dict[str, str | Text]:
    """Return the facts of an explanation, by their titles."""
    binding = explanation["binding"]
    short = (
        f"{binding['accelerator_type']}: {binding['leased_workers']} of {binding['workers']} leased" if binding else ""
    )
    place = (
        ""
        if explanation["position"] is None
        else f"{explanation['position']}, with {explanation['jobs_ahead']} ahead in its tier"
    )
    return {
        "why": Text(explanation["code"], style="bold"),
        "short of": short,
        "target": _fractions(explanation["target_fraction"]),
        "received": _fractions(explanation["received"]),
        "isolated share": explanation["isolated_share"],
        "place": place,
        "tier": explanation["tier_objective"],
        "plans": plan_table(explanation["plan_speeds"]),
        "starts": _when(
            explanation["est_start_at_s"], explanation["est_start_low_at_s"], explanation["est_start_high_at_s"]
        ),
        "ends": _with_size(
            _when(
                explanation["est_finish_at_s"], explanation["est_finish_low_at_s"], explanation["est_finish_high_at_s"]
            ),
            explanation["est_finish_assumes"],
        ),
    }


def _with_size(end: str, assumes: str) -> str:
    return f"{end} {assumes}" if end and assumes else end


def _fractions(of_type: dict[str, float]) -> str:
    return ", ".join(f"{name} {fraction:.1%}" for name, fraction in of_type.items() if fraction > 0)


def _when(at_s: float | None, low_s: float | None, high_s: float | None) -> str:
    if at_s is None or low_s is None or high_s is None:
        return ""
    return f"about {show.instant(at_s)} (nine in ten: {_short(low_s)} to {_short(high_s)})"


def _short(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().strftime("%m-%d %H:%M:%S")


def _calibration(quality: Calibration) -> RenderableType:
    if not quality["predictions"]:
        return Text("no job that was predicted has completed yet")
    intervals = "learned from them" if quality["is_learned"] else "wide, until enough jobs have completed"
    return show.grid(
        {
            "jobs that completed": str(quality["predictions"]),
            "ended in the interval": f"{quality['finishes_inside'] or 0:.0%} (should: {quality['target']:.0%})",
            "started in it": "" if quality["starts_inside"] is None else f"{quality['starts_inside']:.0%}",
            "off by": f"{quality['median_error_s'] or 0:.1f} s, {quality['median_relative_error'] or 0:.0%} (medians)",
            "intervals are": intervals,
        }
    )


def effects(answer: Effects) -> RenderableType:
    """Return the tiers, then the jobs that gain or lose most."""
    tiers = Rows("TIER", "SHARE", "WOULD BE")
    for each in answer["tiers"]:
        tiers.add_row(each["tier"], _share(each["share_before"]), _share(each["share_after"]))
    jobs = Rows("JOB", "TIER", "USER", "STEPS/S", "WOULD BE", "ENDS", "WOULD END", spare=("USER", "TIER"))
    for row in answer["jobs"]:
        rates = (_rate(row["steps_per_s_before"]), _rate(row["steps_per_s_after"]))
        ends = (_end(row["simulated_finish_at_s_before"]), _end(row["simulated_finish_at_s_after"]))
        jobs.add_row(row["job_id"], row["tier"], row["user"], *rates, *ends)
    if len(answer["jobs"]) < answer["jobs_total"]:
        jobs.caption = f"{len(answer['jobs'])} of {answer['jobs_total']} jobs: those that gain or lose most"
    return Group(show.grid(_change(answer)), tiers, jobs)


def _change(answer: Effects) -> dict[str, str | Text]:
    before, after = answer["simulated_mean_left_s_before"], answer["simulated_mean_left_s_after"]
    return {
        "policy": f"{answer['policy_before']} → {answer['policy_after']}",
        "workers": f"{_counts(answer['capacity_before'])} → {_counts(answer['capacity_after'])}",
        "mean time to end": "" if before is None or after is None else f"{before:.0f} s → {after:.0f} s",
    }


def _counts(capacity: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in capacity.items()) or "none"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _end(at_s: float | None) -> str:
    return "" if at_s is None else _short(at_s)
