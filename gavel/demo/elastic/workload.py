"""The jobs of the demo of elastic jobs."""

from dataclasses import dataclass

GLOBAL_BATCH = 48
SAMPLE_MS = 2.0
STEPS_PER_S = 1000 / (GLOBAL_BATCH * SAMPLE_MS)  # of a gang of one
SIZES = (1, 2, 4)
RIGID_SIZE = 2
WORKERS_PER_CORE = 4  # so that one type holds the largest gang
WORKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A training: when it comes, how long a gang of one would take for it, and the seed of its data and parameters."""

    name: str
    arrives_s: float
    length_s: float
    seed: int

    @property
    def steps(self) -> int:
        """Return its number of steps."""
        return round(self.length_s * STEPS_PER_S)


def jobs() -> tuple[ElasticJob, ...]:
    """Return six jobs by their arrival: one alone, then more than there are workers for at once, then one again."""
    rows = (
        ("waves", 0, 60),
        ("digits", 14, 40),
        ("maps", 26, 48),
        ("birds", 34, 32),
        ("cars", 42, 24),
        ("stars", 58, 48),
    )
    return tuple(
        ElasticJob(name=name, arrives_s=at_s, length_s=length_s, seed=seed)
        for seed, (name, at_s, length_s) in enumerate(rows)
    )
