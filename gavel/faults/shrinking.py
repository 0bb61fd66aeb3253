"""The least scenario that still fails: delta debugging over faults and requests (Zeller and Hildebrandt, TSE 2002)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from gavel.faults.scenario import Scenario
from gavel.faults.world import run

T = TypeVar("T")


def shrink(scenario: Scenario, name: str) -> Scenario:
    """Return the scenario with as few faults and requests as still violate the invariant of this name."""

    def fails(candidate: Scenario) -> bool:
        violation = run(candidate).violation
        return violation is not None and violation.name == name

    faults = least(scenario.faults, lambda part: fails(replace(scenario, faults=tuple(part))))
    smaller = replace(scenario, faults=tuple(faults))
    requests = least(smaller.requests, lambda part: fails(replace(smaller, requests=tuple(part))))
    return _without_slack(replace(smaller, requests=tuple(requests)), fails)


def _without_slack(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """Return the scenario with as few processes and nodes, in the plainest form, as still fails."""
    plain = (
        replace(scenario, is_durable=False),
        replace(scenario, processes=1, process_rates=scenario.process_rates[:1]),
        replace(scenario, policy="equal_share"),
        replace(scenario, settings={}),
    )
    for candidate in plain:
        is_possible = all(fault.target < candidate.processes for fault in scenario.faults)
        if candidate != scenario and is_possible and fails(candidate):
            return _without_slack(candidate, fails)
    return scenario


def least(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a sublist for which `fails` holds, and does not without any one of its items (ddmin)."""
    parts = 2
    while len(items) >= 1:
        size = max(1, len(items) // parts)
        without = [[*items[:begin], *items[begin + size :]] for begin in range(0, len(items), size)]
        smaller = next((part for part in without if fails(part)), None)
        if smaller is not None:
            items, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(len(items), 2 * parts)
    return items
