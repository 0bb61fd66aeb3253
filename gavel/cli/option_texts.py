"""Names and values as people write them in options."""

from typing import Any

from gavel.cli.connection import fail


def pairs(option: str, given: list[str] | None, form: str = "NAME=VALUE") -> dict[str, str]:
    """Return the names and values of an option's texts NAME=VALUE. End the command at one that is none."""
    split = [item.partition("=") for item in given or []]
    for name, equals, _ in split:
        if not equals:
            fail(f"{option} {name}: write {form}")
    return {name: value for name, _, value in split}


def labels_of_nodes(given: list[str]) -> dict[str, Any]:
    """Return the fields that `--node-label` states: KEY=VALUE of each node, KEY alone of all together."""
    alone = [each for each in given if "=" not in each]
    if len(alone) > 1:
        fail(f"--node-label {alone[1]}: one label at most may be without a value, besides {alone[0]}")
    stated = [each for each in given if "=" in each]
    return {"node_labels": pairs("--node-label", stated), "topology_label": alone[0] if alone else None}
