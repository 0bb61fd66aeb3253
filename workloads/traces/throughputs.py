"""Throughput tables: the published JSON of Gavel (OSDI '20), and rates for traces that name no job kinds."""

import ast
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gavel.errors import InvalidRequest
from gavel.types import AcceleratorType
from workloads.traces.job import TraceJob

Rates = Mapping[tuple[str, int, AcceleratorType], float]
"""Steps per second of a whole gang, by job kind, scale factor and accelerator type; 0: it cannot run there."""

PairThroughput = Mapping[tuple[str, str, int, AcceleratorType], float]
"""Steps per second of a whole gang, by its kind, the kind beside it on the same workers, scale factor and type."""

SPREAD = "_unconsolidated"
UNIT_KIND = "one step a second"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTable:
    """`rates` (steps/s) of gangs on one node, `spread` of gangs over several nodes; kinds in the order of the file.

    `colocated` has the rates of pairs of gangs on one node that share their workers; pairs that do not fit are absent.
    """

    rates: Rates
    spread: Rates = field(default_factory=dict)
    colocated: PairThroughput = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every job kind, each once."""
        return tuple(dict.fromkeys(kind for kind, _, _ in self.rates))

    @property
    def accelerator_types(self) -> tuple[AcceleratorType, ...]:
        """The accelerator types, sorted."""
        return tuple(sorted({name for _, _, name in self.rates}))


def read_throughputs(path: Path) -> ThroughputTable:
    """Return the table of `{type: {"('kind', scale factor)": {"null": steps/s, ..}}}`; raises InvalidRequest.

    Keys other than "null" are kinds that may share its workers, with both rates: `"('other', 1)": [own, other's]`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{path.name}, line {error.lineno}", f"is no JSON: {error.msg}") from error
    rates: dict[tuple[str, int, AcceleratorType], float] = {}
    spread: dict[tuple[str, int, AcceleratorType], float] = {}
    colocated: dict[tuple[str, str, int, AcceleratorType], float] = {}
    for name, row in content.items():
        for key, entries in row.items():
            kind, size = _key(path, name, key)
            target = spread if name.endswith(SPREAD) else rates
            target[kind, size, name.removesuffix(SPREAD)] = _rate(path, name, key, entries)
            if target is rates:
                colocated |= {(kind, *rest): rate for rest, rate in _colocated(path, name, key, entries)}
    return ThroughputTable(rates=rates, spread=spread, colocated=colocated)


def _key(path: Path, name: str, key: str) -> tuple[str, int]:
    try:
        kind, size = ast.literal_eval(key)
        return str(kind), int(size)
    except (ValueError, SyntaxError, TypeError):
        raise InvalidRequest(f"{path.name}: {name}", f"key {key!r} is not ('kind', scale factor)") from None


def _rate(path: Path, name: str, key: str, entries: Mapping[str, object]) -> float:
    rate = entries.get("null")
    if not isinstance(rate, int | float) or not 0 <= rate < float("inf"):
        raise InvalidRequest(f"{path.name}: {name}: {key}", f'"null" is {rate!r}; give steps/s, at least 0')
    return float(rate)


def _colocated(
    path: Path, name: str, key: str, entries: Mapping[str, object]
) -> Iterator[tuple[tuple[str, int, AcceleratorType], float]]:
    """Yield ((partner's kind, scale factor, type), own rate colocated with it, steps/s) of each partner that fits."""
    size = _key(path, name, key)[1]
    for partner, pair in entries.items():
        if partner == "null":
            continue
        kind, partner_size = _key(path, name, partner)
        own, other = _two_rates(path, f"{name}: {key}: {partner}", pair)
        if partner_size == size and own > 0 and other > 0:
            yield (kind, size, name), own


def _two_rates(path: Path, where: str, pair: object) -> tuple[float, float]:
    match pair:
        case [int() | float() as own, int() | float() as other] if 0 <= min(own, other) < float("inf"):
            return float(own), float(other)
    raise InvalidRequest(f"{path.name}: {where}", f"is {pair!r}; give two rates in steps/s, both at least 0")


class UnitRates(Mapping[tuple[str, int, AcceleratorType], float]):
    """A table in which every gang does 1 step/s on every type: for traces of durations on one accelerator type."""

    def __getitem__(self, key: tuple[str, int, AcceleratorType]) -> float:
        return 1.0

    def __iter__(self) -> Iterator[tuple[str, int, AcceleratorType]]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ScaledRates(Mapping[tuple[str, int, AcceleratorType], float]):
    """A table in which a gang of a size without a rate has the rate of the next smaller size, in proportion."""

    def __init__(self, table: ThroughputTable) -> None:
        self._rates = table.rates
        self._rate = cache(self._scaled)

    def _scaled(self, kind: str, size: int, name: AcceleratorType) -> float:
        smaller = max((s for k, s, t in self._rates if (k, t) == (kind, name) and s <= size), default=None)
        if smaller is None:
            raise KeyError((kind, size, name))
        return self._rates[kind, smaller, name] * size / smaller

    def __getitem__(self, key: tuple[str, int, AcceleratorType]) -> float:
        return self._rate(*key)

    def __iter__(self) -> Iterator[tuple[str, int, AcceleratorType]]:
        return iter(self._rates)

    def __len__(self) -> int:
        return len(self._rates)


def with_kinds(jobs: Iterable[TraceJob], table: ThroughputTable, *, seed: int) -> Iterator[TraceJob]:
    """Yield the jobs; each without a kind gets a random one, and the steps that take its duration on its fastest type.

    Gangs larger than any in the table get a kind that the table has at its largest scale factor.
    """
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    rates = ScaledRates(table)
    largest = max(size for _, size, _ in table.rates)
    for job in jobs:
        if job.spec.kind != UNIT_KIND:
            yield job
            continue
        need = min(job.spec.scale_factor, largest)
        kinds = [kind for kind in table.kinds if any(s >= need for k, s, _ in table.rates if k == kind)]
        kind = draw.choice(kinds)
        best = max(rates[kind, job.spec.scale_factor, name] for name in table.accelerator_types)
        steps = max(1, round(job.total_steps * best))
        yield replace(job, spec=replace(job.spec, kind=kind, total_steps=steps))
