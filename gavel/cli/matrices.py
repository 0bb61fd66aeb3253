"""Allocations and throughputs on a terminal: a matrix by accelerator type, or one line for each entry."""

from rich.text import Text

from gavel.cli.table import FirstThatFits, Rows
from gavel.client import Allocation, ThroughputList

PREDICTED = " ~"  # marks a throughput that was neither measured at full load nor claimed


def allocation(current: Allocation) -> FirstThatFits:
    """Return the matrix of target and received, each cell shaded by its value; else one line per entry."""
    largest = max((value for row in current["rows"] for value in row["target"] + row["received"]), default=0.0)
    types = [f"{name} ×{current['capacity'].get(name, 0)}" for name in current["types"]]
    wide = Rows("JOB", "NAME", "TIER", *types, spare=("TIER", "NAME"))
    narrow = Rows("JOB", "NAME", "ON", "TARGET", "RECEIVED", spare=("NAME",))
    for row in current["rows"]:
        pairs = list(zip(row["target"], row["received"], strict=True))
        wide.add_row(row["job_id"], row["name"], row["tier"], *(_cell(*pair, largest) for pair in pairs))
        for name, pair in zip(types, pairs, strict=True):
            narrow.add_row(row["job_id"], row["name"], name, *(_shaded(value, largest) for value in pair))
    remarks = [f"{row['job_id']}: {row['note']}" for row in current["rows"] if row["note"]]
    if current["is_fallback"]:
        remarks.append(f"fallback: the solver gave no checked answer ({current['solver_outcome']})")
    for shape in (wide, narrow):
        shape.title = f"{current['policy']}, round {current['round_index']}: target | received"
        shape.caption = "\n".join(remarks) or None
    return FirstThatFits(wide, narrow)


def throughputs(listed: ThroughputList) -> FirstThatFits:
    """Return steps per second, kind by type, with half the 90 % interval; rates not measured are marked."""
    from gavel.ports import ThroughputSource as Source

    marks = {Source.MEASURED.value: "", Source.STATED.value: " stated", Source.UNKNOWN.value: " ?"}
    rows: dict[tuple[str, int, str], dict[str, str]] = {}
    for each in (*listed["items"], *listed["interference"]):
        half = each["high_steps_per_s"] / each["steps_per_s"] - 1
        text = f"{each['steps_per_s']:.4g} ±{half:.0%}{marks.get(each['source'], PREDICTED)}"
        refused = f" ({each['refused']} impossible reports)" if each["refused"] else ""
        where = ", ".join(filter(None, [each["partner"] and f"beside {each['partner']}", _spread(each["placement"])]))
        rows.setdefault((each["kind"], each["scale_factor"], where), {})[each["accelerator_type"]] = text + refused
    wide = Rows("KIND", "SCALE FACTOR", "", *listed["types"])
    narrow = Rows("KIND", "SCALE FACTOR", "", "ON", "STEPS/S", spare=("SCALE FACTOR",), long=("",))
    for (kind, scale_factor, where), by_type in rows.items():
        wide.add_row(kind, str(scale_factor), where, *(by_type.get(name, "") for name in listed["types"]))
        for name, text in by_type.items():
            narrow.add_row(kind, str(scale_factor), where, name, text)
    off = (each for each in listed["users"] if each["is_off"])
    remarks = [] if rows else ["nothing was measured yet: rates appear once a job has run"]
    if any(PREDICTED in text for by_type in rows.values() for text in by_type.values()):
        remarks.append("~ predicted, or measured beside idle workers; ± holds the true value nine times in ten")
    remarks += [f"{each['user']}'s statements are off by a factor of {each['typical_factor']:.2g}" for each in off]
    for shape in (wide, narrow):
        shape.caption = "\n".join(remarks) or None
    return FirstThatFits(wide, narrow)


def _spread(placement: str) -> str:
    return "" if placement == "consolidated" else placement


def _cell(target: float, received: float, largest: float) -> Text:
    return _shaded(target, largest) + Text(" ") + _shaded(received, largest)


def _shaded(value: float, largest: float) -> Text:
    """Return a number on a background between dark blue (0) and light green (the largest)."""
    part = value / largest if largest else 0.0
    red, green, blue = (round(low + (high - low) * part) for low, high in ((24, 140), (40, 214), (72, 90)))
    ink = "black" if part > 0.55 else "white"
    return Text(f" {value:.2f} ", style=f"{ink} on #{red:02x}{green:02x}{blue:02x}")
