"""Whether a deadline can be met, with the figures, from what is believed of the job's speed now."""

from collections.abc import Mapping, Sequence

from api.schemas import DeadlineView
from gavel.ports import ThroughputEstimate
from gavel.types import AcceleratorType, Job, JobSpec

KNOWN = ("measured", "completed", "stated")  # sources that a promise may rest on


def deadline_view(
    job: Job,
    *,
    table: Sequence[ThroughputEstimate],
    capacity: Mapping[AcceleratorType, int],
    unfinished: int,
    now_s: float,
) -> DeadlineView | None:
    """The answer for an unfinished job with a deadline, None for any other. `unfinished`: jobs, this one included.

    Expected is the pace of an equal share: e_m = sum_j T_mj N_j / sum_j N_j (Gavel, OSDI '20, section 4.1), on 1/n of
    the cluster (Themis, NSDI '20, section 3).
    """
    deadline_at_s = job.spec.deadline_at_s
    if deadline_at_s is None or job.state.is_terminal:
        return None
    rates = rates_of(job.spec, table, capacity)
    if not rates:
        message = f"nobody has measured or stated the speed of {job.spec.kind} yet"
        return _view("unknown", deadline_at_s, None, None, message)
    left = max(0, job.spec.total_steps - max(job.steps_done, job.steps_reported))
    workers = sum(capacity.values())
    equal = sum(rate * capacity[name] for name, rate in rates.items()) / workers
    share = min(1.0, workers / max(1, unfinished * job.spec.scale_factor))
    earliest, expected = now_s + left / max(rates.values()), now_s + left / (equal * share)
    fastest = max(rates, key=lambda name: rates[name])
    figures = (
        f"{left} steps take {left / max(rates.values()):.0f} s alone on {fastest},"
        f" {left / (equal * share):.0f} s on an equal share of {unfinished} jobs;"
        f" the deadline is in {deadline_at_s - now_s:.0f} s"
    )
    verdict = "yes" if expected <= deadline_at_s else "at_risk" if earliest <= deadline_at_s else "no"
    return _view(verdict, deadline_at_s, earliest, expected, figures)


def rates_of(
    spec: JobSpec, table: Sequence[ThroughputEstimate], capacity: Mapping[AcceleratorType, int]
) -> dict[AcceleratorType, float]:
    """Steps per second of the gang on each type that holds it and whose speed is known; what is stated comes last."""
    rates = {name: rate for name, rate in spec.throughput_steps_per_s.items()}
    for each in table:
        if (each.kind, each.scale_factor, each.partner) == (
            spec.kind,
            spec.scale_factor,
            None,
        ) and each.source in KNOWN:
            rates[each.accelerator_type] = each.steps_per_s
    return {name: rate for name, rate in rates.items() if capacity.get(name, 0) >= spec.scale_factor}


def _view(
    verdict: str, deadline_at_s: float, earliest: float | None, expected: float | None, message: str
) -> DeadlineView:
    return DeadlineView.model_validate(
        {
            "can_be_met": verdict,
            "deadline_at_s": deadline_at_s,
            "earliest_finish_at_s": earliest,
            "expected_finish_at_s": expected,
            "message": message,
        }
    )
