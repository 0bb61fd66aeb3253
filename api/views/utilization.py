"""What the ranks of a job used, as its owner sees it."""

from collections.abc import Sequence

from api.schemas.results import JobUtilizationView, RankUtilizationView
from api.views.metrics import evenly
from gavel.backends.utilization import UtilizationSample

RANKS_MAX = 64


def utilization_view(samples: Sequence[UtilizationSample], most: int) -> JobUtilizationView:
    """Return at most `most` samples of each rank, evenly chosen, with the first and the last."""
    of_rank: dict[int, list[UtilizationSample]] = {}
    for sample in samples:
        of_rank.setdefault(sample.rank, []).append(sample)
    return JobUtilizationView(ranks=[_rank(rank, evenly(of_rank[rank], most)) for rank in sorted(of_rank)[:RANKS_MAX]])


def _rank(rank: int, samples: Sequence[UtilizationSample]) -> RankUtilizationView:
    return RankUtilizationView(
        rank=rank,
        at_s=[each.at_s for each in samples],
        generations=[each.generation for each in samples],
        cpu_cores=[each.cpu_cores for each in samples],
        memory_bytes=[each.memory_bytes for each in samples],
        accelerator_busy=[each.accelerator_busy for each in samples],
        accelerator_memory_bytes=[each.accelerator_memory_bytes for each in samples],
    )
