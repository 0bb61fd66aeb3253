"""Durations as people say them: one unit, rounded, the same in every sentence."""

UNITS = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"), (float("inf"), 86_400.0, "days"))


def lasting(seconds: float) -> str:
    """Return a duration in its unit, such as "100 s" or "17 min"."""
    scale, unit = unit_of(seconds)
    return f"{max(0, round(seconds / scale))} {unit}"


def in_about(seconds: float, low_s: float, high_s: float) -> str:
    """Return an expected time from now with its interval, such as "in about 7 s (0 to 14 s)", or "within 4 s"."""
    scale, unit = unit_of(high_s)
    at, low, high = (max(0, round(each_s / scale)) for each_s in (seconds, low_s, high_s))
    return f"in about {at} {unit} ({low} to {high} {unit})" if at else f"within {max(1, high)} {unit}"


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit for a duration: its length in seconds and its name."""
    return next((scale, unit) for below_s, scale, unit in UNITS if seconds < below_s)
