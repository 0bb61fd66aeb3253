"""Decisions of an autopilot as a service would have stored them, for what people see of them."""

from collections.abc import Iterator
from dataclasses import replace

from gavel.store.sql import SqlStore
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, CompositionScore

COMPOSITIONS = ("max_min_fairness", "shortest_job_first", "fifo/backfill=false")
GAINS = ((0.0, 0.31, -0.12), (-0.24, 0.0, -0.4), (-0.2, 0.0, -0.35))
REPLAYED = ((1.2, 0.9, 1.5), (1.25, 0.8, 1.75))
FEATURES = ("arrivals an hour", "jobs", "demand over workers")


def a_score(composition: str, gain: float, **over: object) -> CompositionScore:
    score = CompositionScore(
        composition=composition,
        futures=8,
        cost=1 - gain,
        gain=gain,
        error=0.04,
        epoch_cost=0.5,
        correction=1.0,
        preference=0.0,
        keeps_limits=True,
    )
    return replace(score, **over)  # type: ignore[arg-type]


def three_decisions(now_s: float, epoch_s: float = 3600.0) -> Iterator[AutopilotDecision]:
    """Yield decisions in mode auto, oldest first: a switch, then two that keep what is in force."""
    for number, gains in enumerate(GAINS):
        incumbent = COMPOSITIONS[number > 0]
        yield AutopilotDecision(
            number=number,
            at_s=now_s - (len(GAINS) - number - 0.5) * epoch_s,
            mode=AutopilotMode.AUTO,
            goal="mean_jct",
            seed=0,
            incumbent=incumbent,
            chosen="shortest_job_first",
            reason=f"it gains 31.0 % +- 4.0 over {incumbent}, tried on 8 futures"
            if number == 0
            else "every other composition is behind, or breaks a limit",
            is_followed=number == 0,
            inputs_digest=f"{number:064x}",
            scores=tuple(
                a_score(name, gain, error=0.0 if name == incumbent else 0.04)
                for name, gain in zip(COMPOSITIONS, gains, strict=True)
            ),
            features=tuple((name, float(number + place)) for place, name in enumerate(FEATURES)),
            replayed=() if number == 0 else tuple(zip(COMPOSITIONS, REPLAYED[number - 1], strict=True)),
            actual=None if number == 0 else 1.0,
            cpu_s=2.5,
            jobs=12 + number,
            has_question=True,
        )


def keep(store: SqlStore, *decisions: AutopilotDecision, question: bytes = b"") -> None:
    """Store decisions as the leader does, each with this question."""
    for each in decisions:
        store.autopilot.add(each, question, b"", keep_questions=20)
