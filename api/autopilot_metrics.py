"""Prometheus metrics of the autopilot: its mode, its decisions, and what they cost."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from api.views.autopilot import LOOKED_AT, cpu_s_since, failures_in_a_row
from gavel.ports import ApiStore
from gavel.types import SECONDS_PER_HOUR
from gavel.types.autopilot import AutopilotDecision, AutopilotMode

DAY_S = 24 * SECONDS_PER_HOUR


def autopilot_metrics(store: ApiStore, mode: AutopilotMode, now_s: float) -> Iterable[Metric]:
    """Yield the mode, how many decisions there were, how the last ones went, and what the newest one advises."""
    decisions = store.autopilot.decisions(limit=LOOKED_AT)
    modes = GaugeMetricFamily("gavel_autopilot_mode", "1 for the mode that is set.", labels=("mode",))
    for each in AutopilotMode:
        modes.add_metric((each.value,), float(each is mode))
    yield modes
    count = decisions[0].number + 1 if decisions else 0
    yield CounterMetricFamily("gavel_autopilot_decisions", "Decisions, made or failed.", value=count)
    last_day = [each for each in decisions if each.at_s > now_s - DAY_S]
    yield from _of_last_day(last_day)
    text = "Decisions that failed one after the other, up to now."
    yield GaugeMetricFamily("gavel_autopilot_failures_in_a_row", text, value=failures_in_a_row(decisions))
    text = "CPU seconds of the decisions of the last hour."
    used_s = cpu_s_since(decisions, now_s - SECONDS_PER_HOUR)
    yield GaugeMetricFamily("gavel_autopilot_cpu_seconds_last_hour", text, value=used_s)
    text = "Gain of what the newest decision chose over what was in force, as a fraction of the cost of that."
    yield GaugeMetricFamily("gavel_autopilot_gain_advised", text, value=_gain(decisions[0]) if decisions else 0.0)


def _of_last_day(decisions: Sequence[AutopilotDecision]) -> Iterable[Metric]:
    failed = sum(bool(each.failure) for each in decisions)
    switched = sum(each.is_followed and each.chosen != each.incumbent for each in decisions)
    text = "Decisions of the last 24 hours that failed."
    yield GaugeMetricFamily("gavel_autopilot_failures_last_day", text, value=failed)
    text = "Decisions of the last 24 hours that put another composition in force."
    yield GaugeMetricFamily("gavel_autopilot_switches_last_day", text, value=switched)


def _gain(decision: AutopilotDecision) -> float:
    return next((score.gain for score in decision.scores if score.composition == decision.chosen), 0.0)
