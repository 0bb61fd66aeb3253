"""The demo's jobs: five model families, two users in two tiers, gangs, arrivals over time."""

from dataclasses import dataclass

GOLD, FREE = "gold", "free"

REFERENCE_STEPS_PER_S = {  # on one avx512 worker of the machine the demo was sized on, both workers of the core busy
    "mlp-b256": 54.0,
    "rnn-b256": 28.0,
    "cnn-b64": 33.0,
    "recsys-b16384": 41.0,
    "rl-b96": 49.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """A job of the demo: when it comes, whose it is, and how much it wants to do."""

    name: str
    tier: str
    kind: str
    arrives_s: float
    length_s: float  # alone on the reference worker
    scale_factor: int = 1

    def total_steps(self, speed: float) -> int:
        """Steps that take about `length_s` on a machine `speed` times as fast as the reference."""
        return max(20, round(self.length_s * REFERENCE_STEPS_PER_S[self.kind] * speed))


def jobs() -> tuple[DemoJob, ...]:
    """Twelve jobs in order of arrival; all five families in both tiers but one, two gangs of two."""
    rows = (
        ("digits", GOLD, "mlp-b256", 0.0, 31.0, 1),
        ("ads", FREE, "recsys-b16384", 0.0, 25.0, 1),
        ("maze", GOLD, "rl-b96", 0.5, 25.0, 1),
        ("waves", FREE, "rnn-b256", 1.0, 25.0, 1),
        ("pets", GOLD, "cnn-b64", 4.0, 22.0, 1),
        ("speech", GOLD, "rnn-b256", 6.0, 31.0, 1),
        ("films", FREE, "recsys-b16384", 8.0, 20.0, 2),
        ("letters", FREE, "mlp-b256", 10.0, 25.0, 1),
        ("shops", GOLD, "recsys-b16384", 16.0, 25.0, 1),
        ("cars", FREE, "cnn-b64", 20.0, 20.0, 1),
        ("robot", FREE, "rl-b96", 24.0, 20.0, 1),
        ("scans", GOLD, "mlp-b256", 28.0, 20.0, 2),
    )
    return tuple(
        DemoJob(name=name, tier=tier, kind=kind, arrives_s=at, length_s=length, scale_factor=scale)
        for name, tier, kind, at, length, scale in rows
    )
