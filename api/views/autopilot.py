"""The autopilot as it travels: its setting, what is in force and why, its decisions."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import fsum, isfinite

from api.schemas.autopilot import (
    AutopilotDecisionList,
    AutopilotDecisionView,
    AutopilotSettingView,
    AutopilotView,
    CompositionScoreView,
    RegretView,
)
from gavel.autopilot.goals import MEASURES
from gavel.autopilot.regret import regrets
from gavel.autopilot.schedule import OF_AN_HOUR, attempts_of, circumstances, next_decision
from gavel.config import Settings
from gavel.ports import Snapshot
from gavel.types import SECONDS_PER_HOUR, Cluster
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, AutopilotSetting, CompositionScore

LOOKED_AT = OF_AN_HOUR  # decisions, the newest ones, that the state of the autopilot is made of


def setting_view(setting: AutopilotSetting) -> AutopilotSettingView:
    """Return what an operator has set."""
    return AutopilotSettingView(
        mode=setting.mode.value,
        goal=setting.goal,
        candidates=list(setting.candidates),
        epoch_s=setting.epoch_s,
        pinned=setting.pinned,
    )


def decision_list(decisions: Sequence[AutopilotDecision], limit: int, before: int | None) -> AutopilotDecisionList:
    """Return a page of decisions, newest first, of those below `before`; `decisions` may begin with the one after."""
    views = [each for each in decision_views(decisions) if before is None or each.number < before][:limit]
    return AutopilotDecisionList(items=views, next_before=views[-1].number if len(views) == limit else None)


def decision_views(decisions: Sequence[AutopilotDecision]) -> list[AutopilotDecisionView]:
    """Return decisions, newest first, each with what its epoch did cost, which the decision after it has replayed."""
    after = (None, *decisions)
    return [decision_view(each, later) for each, later in zip(decisions, after, strict=False)]


def decision_view(decision: AutopilotDecision, later: AutopilotDecision | None) -> AutopilotDecisionView:
    """Return one decision; `later` is the one that came next, if there is one."""
    is_next = later is not None and later.number == decision.number + 1
    copied = ("number", "at_s", "goal", "seed", "incumbent", "chosen", "reason", "is_followed", "failure", "jobs")
    return AutopilotDecisionView(
        **{name: getattr(decision, name) for name in (*copied, "cpu_s", "inputs_digest")},
        mode=decision.mode.value,
        scores=[_score_view(each) for each in decision.scores],
        features=dict(decision.features),
        predicted=_predicted(decision),
        actual=later.actual if is_next and later else None,
        can_be_verified=decision.has_question and not decision.failure,
    )


def _score_view(score: CompositionScore) -> CompositionScoreView:
    return CompositionScoreView(**asdict(score) | {"error": score.error if isfinite(score.error) else None})


def _predicted(decision: AutopilotDecision) -> float | None:
    """Return what it predicts of the composition that was in force after it."""
    in_force = decision.chosen if decision.is_followed else decision.incumbent
    return next((score.epoch_cost for score in decision.scores if score.composition == in_force), None)


def regret_views(decisions: Iterable[AutopilotDecision]) -> list[RegretView]:
    """Return the regret of the epochs against each composition, against the best one first."""
    return [
        RegretView(
            composition=each.composition,
            epochs=each.epochs,
            actual=each.actual,
            replayed=each.replayed,
            regret=each.regret,
        )
        for each in regrets(decisions)
    ]


def failures_in_a_row(decisions: Iterable[AutopilotDecision]) -> int:
    """Return how many of the newest decisions failed, one after the other."""
    count = 0
    for each in decisions:
        if not each.failure:
            break
        count += 1
    return count


def sentence(setting: AutopilotSetting, in_force: str, newest: AutopilotDecision | None) -> str:
    """Return what people read first: which composition is in force, and why."""
    if setting.mode is AutopilotMode.OFF:
        return f"{in_force} is in force, as it was set. The autopilot is off."
    if setting.mode is AutopilotMode.PIN:
        return f"{setting.pinned} is pinned: it stays in force until somebody changes that."
    if newest is None:
        return f"{in_force} is in force, as it was set. The autopilot has made no decision yet."
    if newest.failure:
        return f"{in_force} stays in force. The newest decision failed: {newest.failure}."
    if newest.chosen == in_force:
        return f"{in_force} is in force: {newest.reason}."
    if newest.is_followed:
        return f"{newest.chosen} is in force from the next round on: {newest.reason}."
    return f"{in_force} is in force. The autopilot advises {newest.chosen}: {newest.reason}."


def autopilot_view(
    snapshot: Snapshot, cluster: Cluster, settings: Settings, decisions: Sequence[AutopilotDecision], now_s: float
) -> AutopilotView:
    """Return what the autopilot does; `decisions` are the newest ones, newest first."""
    from gavel.autopilot.setting import candidates

    now = circumstances(snapshot, cluster)
    due = next_decision(now, attempts_of(decisions, now), now_s)

    setting, in_force = snapshot.autopilot, snapshot.policy or settings.policy
    newest = decisions[0] if decisions else None
    return AutopilotView(
        setting=setting_view(setting),
        candidates=list(candidates(setting, settings)),
        in_force=in_force,
        sentence=sentence(setting, in_force, newest),
        newest=None if newest is None else decision_view(newest, None),
        next_at_s=due.at_s if isfinite(due.at_s) else None,
        waits_for="" if isfinite(due.at_s) and due.at_s > now_s else due.why,
        failures_in_a_row=failures_in_a_row(decisions),
        cpu_s_last_hour=cpu_s_since(decisions, now_s - SECONDS_PER_HOUR),
        regrets=regret_views(decisions),
        measures=dict(MEASURES),
    )


def cpu_s_since(decisions: Iterable[AutopilotDecision], since_s: float) -> float:
    """Return the CPU seconds of the decisions that were made after the instant."""
    return fsum(each.cpu_s for each in decisions if each.at_s > since_s)
