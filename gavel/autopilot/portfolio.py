"""The compositions that a decision about the live service compares: those that can be read and give an allocation."""

from collections.abc import Iterator
from dataclasses import dataclass

from gavel.autopilot.composition import read, spelling
from gavel.autopilot.objectives import with_objectives
from gavel.autopilot.setting import candidates
from gavel.config import Settings
from gavel.errors import InvalidRequest, SolveFailed
from gavel.policies import registry
from gavel.ports import PolicyRunner
from gavel.simulator.live import Live
from gavel.types import AllocationProblem
from gavel.types.autopilot import AutopilotSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """`candidates`: the safe one first, the one in force among them. `notes`: which were left out, and why."""

    candidates: tuple[str, ...]
    incumbent: str
    notes: tuple[str, ...] = ()


def portfolio(
    setting: AutopilotSetting, live: Live, problem: AllocationProblem, runner: PolicyRunner, *, leaves_out_own: bool
) -> Portfolio:
    """Return the portfolio. With `leaves_out_own` no policy of the operator's own is in it but the one in force."""
    service = live.settings
    incumbent = spelling(live.policy or service.policy, service)
    texts = candidates(setting, service)
    if not setting.candidates:
        texts = tuple(dict.fromkeys((*texts, *with_objectives(live.tiers.values()))))
    refused = dict(_refused(texts, service, problem, runner, leaves_out_own=leaves_out_own))
    stays = tuple(text for text in texts if text not in refused or text == incumbent)
    every = stays if incumbent in stays else (*stays, incumbent)
    return Portfolio(
        candidates=every,
        incumbent=incumbent,
        notes=tuple(f"{text} ({why})" for text, why in refused.items() if text not in every),
    )


def _refused(
    texts: tuple[str, ...], service: Settings, problem: AllocationProblem, runner: PolicyRunner, *, leaves_out_own: bool
) -> Iterator[tuple[str, str]]:
    """Yield the compositions that cannot be compared, with the reason: each is asked for one allocation."""
    for text in texts:
        try:
            composition = read(text, service)
            if leaves_out_own and _is_own(composition.policy):
                yield text, "a policy of your own, and the decision before failed"
                continue
            runner.allocate(composition.policy, problem, service.solve_time_limit_s)
        except (InvalidRequest, SolveFailed) as error:
            yield text, str(error)


def _is_own(policy: str) -> bool:
    return policy.partition("?")[0] not in {each.name for each in registry.available()}
