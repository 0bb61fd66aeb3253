"""Scenarios as JSON, so that a failing one can be kept whatever becomes of the drawing of seeds."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gavel.faults.scenario import (
    Behaviour,
    ClientRequest,
    Fault,
    FaultKind,
    NodePlan,
    Program,
    Request,
    Scenario,
)


def as_json(scenario: Scenario) -> str:
    """Return the scenario as JSON."""
    return json.dumps(asdict(scenario), indent=1)


def scenario_of(text: str) -> Scenario:
    """Return the scenario that `as_json` wrote."""
    record: Mapping[str, Any] = json.loads(text)
    return Scenario(
        **{
            **record,
            "nodes": tuple(NodePlan(**each) for each in record["nodes"]),
            "programs": tuple(
                Program(**{**each, "behaviour": Behaviour(each["behaviour"]), "sizes": tuple(each.get("sizes", ()))})
                for each in record["programs"]
            ),
            "requests": tuple(ClientRequest(**{**each, "kind": Request(each["kind"])}) for each in record["requests"]),
            "faults": tuple(Fault(**{**each, "kind": FaultKind(each["kind"])}) for each in record["faults"]),
            "process_rates": tuple(record["process_rates"]),
        }
    )
