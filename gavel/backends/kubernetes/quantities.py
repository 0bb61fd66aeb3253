"""Quantities as Kubernetes writes them: 100m, 4, 16Gi."""

import re

POWERS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", start=1)
}


def number_of(quantity: object) -> float:
    """Return a quantity in its unit: cores, bytes or pieces; 0 for what is no quantity."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", str(quantity))
    if match is None or match[2] not in POWERS:
        return 0.0
    try:
        return float(match[1]) * POWERS[match[2]]
    except ValueError:
        return 0.0
