"""Two kinds of work on one mixed cluster: a service with a demand that changes, and training on what it leaves.

The demand is an hour of published requests to a language model (Azure, 2023), in seconds as they came. Its first half
tunes each rule, the second half judges; the first WARM_UP_S seconds, in which rules learn, do not count. There are 12
v100, 12 p100 and 12 k80. A fifth more than the peak of the first half (over COUNTED_S seconds) is a quarter, a half or
three quarters of what all of them could answer. A replica's rate by type is as the published speeds of a Transformer
with small batches; a worker of training counts the mean speed of the published kinds on its type, relative to the
fastest one. There is always enough training. A replica holds its worker from the moment it is made, is ready START_S
later, and drains for DRAIN_S. The decisions are the service's own: `followed` for the demand, `decide` for the
replicas. An hour has no earlier day: the forecast of daily shapes says nothing here.
"""

import csv
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.table import Row, run
from gavel.mechanism.services.decision import Replica, Wanted, decide, types_to_make
from gavel.mechanism.services.demand import DemandSeen, followed
from gavel.mechanism.services.replica_mix import MixProblem, least_loss, most_answered
from gavel.types import Check, DemandSpec, DemandStatus, FloatArray, ServiceSpec, Serving
from workloads.traces.throughputs import read_throughputs

WORKERS = {"k80": 12, "p100": 12, "v100": 12}
LIKE = "Transformer (batch size 16)"
PARTS_OF_CLUSTER, PEAK_HEADROOM = (0.25, 0.5, 0.75), 1.2
START_S, DRAIN_S, WARM_UP_S = 60, 10, 300
COUNTED_S = 20  # over which requests per second are measured, as in gavel/backends/replica_load.py
WAIT_MAX_S = 2.0  # of a request for a free replica, within its goal
ATTAINED, TRAINING_MORE = 99.5, 25.0  # percent
HEADROOMS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a run has: requests of each second, a replica's rate and training's loss by type."""

    arrivals: FloatArray
    rates: Mapping[str, float]
    loss: Mapping[str, float]

    @property
    def half(self) -> int:
        """Return the second at which the second half begins."""
        return len(self.arrivals) // 2

    def mix(self, needed: float) -> dict[str, int]:
        """Return the replicas that lose training least and answer so much; all workers, if these are not enough."""
        types = sorted(self.rates)
        problem = MixProblem(
            rate=tuple(self.rates[each] for each in types),
            loss=tuple(self.loss[each] for each in types),
            least=(0,) * len(types),
            most=tuple(WORKERS[each] for each in types),
            count_min=1,
            count_max=sum(WORKERS.values()),
            needed=needed,
        )
        return dict(zip(types, least_loss(problem) or most_answered(problem), strict=True))


@dataclass
class Fleet:
    """The replicas that there are, as the decision about them makes them and lets them go."""

    replicas: dict[str, Replica] = field(default_factory=dict)
    made: int = 0

    def ready(self) -> Counter[str]:
        """Return the replicas that get requests, by type."""
        return Counter(each.accelerator_type for each in self.replicas.values() if each.is_ready and _stays(each))

    def held(self) -> Counter[str]:
        """Return the workers that replicas hold, by type."""
        return Counter(each.accelerator_type for each in self.replicas.values())

    def pass_to(self, now_s: int) -> None:
        """Let those that were made long enough ago be ready."""
        for key, each in self.replicas.items():
            if not each.is_ready and now_s - each.made_at_s >= START_S:
                self.replicas[key] = replace(each, is_running=True, is_ready=True, was_ready=True)

    def follow(self, mix: Mapping[str, int], now_s: int) -> None:
        """Carry out what is decided about the replicas."""
        count = sum(mix.values())
        wanted = Wanted(replicas=count, min_available=1, surge=1, version=1, drain_s=DRAIN_S, mix=mix)
        there = list(self.replicas.values())
        acts = decide(wanted, there, now_s)
        for key in acts.leave:
            self.replicas[key] = replace(self.replicas[key], leaving_at_s=now_s)
        for key in acts.end:
            del self.replicas[key]
        for name in types_to_make(wanted, there)[: acts.make]:
            self.made += 1
            key = f"{self.made:06}"
            self.replicas[key] = Replica(id=key, version=1, accelerator_type=name, made_at_s=now_s)


def _stays(replica: Replica) -> bool:
    return replica.leaving_at_s is None


Rule = Callable[[int, float, Fleet], Mapping[str, int]]
"""The replicas that are wanted, from the second, the requests per second that were counted, and those there are."""


def by_demand(setting: Setting, headroom: float) -> Rule:
    """Return the rule of the service."""
    demand = DemandSpec(rates=setting.rates, headroom=headroom)
    service = ServiceSpec(
        replicas=1,
        replicas_min=1,
        replicas_max=sum(WORKERS.values()),
        min_available=1,
        serving=Serving(port=0, readiness=Check()),
        demand=demand,
    )
    status = DemandStatus()

    def wanted(now_s: int, counted: float, fleet: Fleet) -> Mapping[str, int]:
        nonlocal status
        ready = fleet.ready()
        started = (float(START_S),) if ready.total() and not status.start_s else ()
        seen = DemandSeen(
            now_s=float(now_s),
            demand=counted,
            ready=ready,
            room=WORKERS,
            room_now=WORKERS,
            loss=setting.loss,
            started_s=started,
        )
        status = followed(status, service, seen)
        return status.replicas or {}

    return wanted


def by_utilization(setting: Setting, headroom: float) -> Rule:
    """Return the rule of Kubernetes' HorizontalPodAutoscaler at its defaults, types chosen as by the service.

    Every 15 s, a load within 10 % of the target changes nothing, and what is wanted is the most of the last 300 s.
    """
    recent: deque[float] = deque(maxlen=300 // 15)
    wanted_mix: dict[str, int] = {}

    def wanted(now_s: int, counted: float, fleet: Fleet) -> Mapping[str, int]:
        nonlocal wanted_mix
        if now_s % 15 and wanted_mix:
            return wanted_mix
        answered = sum(setting.rates[name] * count for name, count in fleet.ready().items())
        ratio = counted * (1 + headroom) / answered if answered else np.inf
        needed = answered if abs(ratio - 1) <= 0.1 else counted * (1 + headroom)
        recent.append(needed)
        wanted_mix = setting.mix(max(recent))
        return wanted_mix

    return wanted


def constant(mix: Mapping[str, int]) -> Rule:
    """Return the rule of a number that never changes."""
    return lambda now_s, counted, fleet: mix


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Of the seconds that count: requests within the goal in percent, training done in fastest workers, replicas."""

    attained: float
    training: float
    replicas: float
    made: int


def simulated(setting: Setting, rule: Rule, first_s: int, last_s: int, counts_from_s: int) -> Result:
    """Return what becomes of the seconds from `counts_from_s`; the first replicas are those of the first minute."""
    fleet, backlog, good, asked, training, held = Fleet(), 0.0, 0.0, 0.0, 0.0, 0.0
    made_before = 0
    arrivals = setting.arrivals
    for now_s in range(first_s, last_s):
        counted = float(arrivals[max(0, now_s - COUNTED_S) : now_s].mean()) if now_s else float(arrivals[:60].mean())
        if now_s == first_s:
            fleet.follow(rule(now_s, float(arrivals[first_s : first_s + 60].mean()), fleet), now_s - START_S)
        fleet.pass_to(now_s)
        fleet.follow(rule(now_s, counted, fleet), now_s)
        answers = sum(setting.rates[name] * count for name, count in fleet.ready().items())
        is_good = answers > 0 and backlog / answers <= WAIT_MAX_S
        backlog = max(0.0, backlog + arrivals[now_s] - answers)
        if now_s < counts_from_s:
            made_before = fleet.made
            continue
        holding = fleet.held()
        asked, good = asked + arrivals[now_s], good + arrivals[now_s] * is_good
        training += sum((WORKERS[name] - holding[name]) * setting.loss[name] for name in WORKERS)
        held += holding.total()
    seconds = last_s - counts_from_s
    return Result(
        attained=float(100 * good / asked),
        training=training / seconds,
        replicas=held / seconds,
        made=fleet.made - made_before,
    )


def tuned(setting: Setting, rule_of: Callable[[Setting, float], Rule]) -> float:
    """Return the least headroom with which the first half attains the goal; the largest, if none does."""
    for headroom in HEADROOMS:
        if simulated(setting, rule_of(setting, headroom), 0, setting.half, WARM_UP_S).attained >= ATTAINED:
            return headroom
    return HEADROOMS[-1]


def static_for(setting: Setting, first_s: int, last_s: int, attained: float) -> dict[str, int]:
    """Return the constant replicas that lose training least and attain so much in these seconds."""
    mean, peak = (float(each) for each in (setting.arrivals.mean(), setting.arrivals.max()))
    for needed in np.arange(0.8 * mean, peak, min(setting.rates.values()) / 4):
        mix = setting.mix(float(needed))
        if simulated(setting, constant(mix), first_s, last_s, first_s).attained >= attained:
            return mix
    return setting.mix(peak)


def peak_of(arrivals: FloatArray) -> float:
    """Return the most requests per second over COUNTED_S seconds."""
    return float(np.convolve(arrivals, np.ones(COUNTED_S) / COUNTED_S, "valid").max())


def setting_of(folder: Path, part: float) -> Setting:
    """Return the setting of the module's docstring, from the folder that GAVEL_DATA names."""
    with (folder / "azure_llm_2023_conv.csv").open(newline="") as lines:
        arrivals = np.bincount([int(float(row["arrival_s"])) for row in csv.DictReader(lines)]).astype(float)
    table, types = read_throughputs(folder / "gavel" / "simulation_throughputs.json").rates, sorted(WORKERS)
    kinds = sorted({kind for kind, scale_factor, _ in table if scale_factor == 1})
    speed = np.array([[table[kind, 1, each] for each in types] for kind in kinds])
    relative = speed / speed.max(axis=1, keepdims=True)
    like = relative[kinds.index(LIKE)]
    peak = PEAK_HEADROOM * peak_of(arrivals[: len(arrivals) // 2])
    rates = like * peak / (part * like @ [WORKERS[each] for each in types])
    return Setting(
        arrivals=arrivals,
        rates=dict(zip(types, rates.tolist(), strict=True)),
        loss=dict(zip(types, relative.mean(axis=0).tolist(), strict=True)),
    )


def rows(quick: bool) -> Iterator[Row]:
    """Yield the figures for each part of the cluster that the peak asks for; the quick form has only the middle one."""
    folder = Path(os.environ.get("GAVEL_DATA", "/nowhere"))
    if not (folder / "azure_llm_2023_conv.csv").is_file():
        print("skipped: GAVEL_DATA names no folder with azure_llm_2023_conv.csv", file=sys.stderr)
        return
    for part in PARTS_OF_CLUSTER[1:2] if quick else PARTS_OF_CLUSTER:
        setting = setting_of(folder, part)
        for name in sorted(WORKERS):
            yield Row(f"{100 * part:g} %, rate on {name}", setting.rates[name], "requests/s", is_detail=True)
            yield Row(f"{100 * part:g} %, training on {name}", setting.loss[name], "of fastest", is_detail=True)
        yield from compared(f"{100 * part:g} %", setting)


def compared(where: str, setting: Setting) -> Iterator[Row]:
    """Yield what becomes of the second half by each rule, tuned on the first one.

    Constant numbers: for the peak of the first half and a fifth, the least that the first half attains the goal with,
    and the least that attains in the second half what the rule by demand does there, which nobody can know before.
    """
    end = len(setting.arrivals)
    ours, usual = (tuned(setting, each) for each in (by_demand, by_utilization))
    result = simulated(setting, by_demand(setting, ours), 0, end, setting.half)
    yield from _shown(f"{where}, by demand, headroom {ours:g}", result, ATTAINED)
    peak = PEAK_HEADROOM * peak_of(setting.arrivals[: setting.half])
    constants = {
        "constant for the peak": setting.mix(peak),
        "constant, tuned": static_for(setting, WARM_UP_S, setting.half, ATTAINED),
        "constant, in hindsight": static_for(setting, setting.half, end, min(ATTAINED, result.attained)),
    }
    rules = {f"by utilization, headroom {usual:g}": by_utilization(setting, usual)}
    for name, rule in (rules | {name: constant(mix) for name, mix in constants.items()}).items():
        other = simulated(setting, rule, 0, end, setting.half)
        yield from _shown(f"{where}, {name}", other)
        more, target = 100 * (result.training / other.training - 1), None if name in rules else TRAINING_MORE
        yield Row(f"{where}: training more than {name}", more, "%", target, at_least=True)


def _shown(name: str, result: Result, target: float | None = None) -> Iterator[Row]:
    yield Row(f"{name}: in time", result.attained, "%", target, True)
    yield Row(f"{name}: training done", result.training, "fastest workers")
    yield Row(f"{name}: workers held by replicas", result.replicas, "")
    yield Row(f"{name}: replicas made", result.made, "", is_detail=True)


if __name__ == "__main__":
    run("A service beside training", rows)
