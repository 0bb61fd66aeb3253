"""What the autopilot brings: its cost over that of the best composition that could have been fixed, in hindsight.

    make bench-autopilot [QUICK=1] [JSON=file] [TABLE="real streams, sigma 0"]

Cases are workloads of the suite of sets of tasks, each alone and as phases with what the one before left to do, and
streams of GPU clusters (if GAVEL_DATA names their folder). Baselines: each fixed composition, a random one in each
epoch, UCB1 and LinUCB on the rewards of epochs, and for phases a table by workload, made with other seeds. The tables
are also written into docs/autopilot.md; TABLE makes one of them. Nothing of the autopilot was chosen by these cases but
on those of TUNED_ON.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks import evaluation_page
from benchmarks.autopilot_cases import OF_GANGS, POSTERS, STREAMS, WIDER, Case, has_streams, phase_names
from benchmarks.autopilot_runs import (
    AUTOPILOT,
    LABEL,
    LINUCB,
    RANDOM,
    UCB1,
    Ran,
    best_by_label,
    fixed,
    flown,
    labelled,
    selected,
)
from benchmarks.table import Row, run
from workloads.traces.suite import WORKLOADS

PAGE = Path(__file__).parents[1] / "docs" / "autopilot.md"
WORKERS = 2  # processes
MEASURES = ("mean_jct", "mean_slowdown")
SIGMAS = (0.0, 0.5, 1.5)
JOBS = {"coarse": 16, "fine": 5, "mixed": 8}
PHASE_JOBS, PHASE_SEEDS, STREAM_JOBS = 5, (0, 1, 2), 400
QUICK = ("coarse-batch", "coarse-bursty")
SELECTORS = (AUTOPILOT, RANDOM, UCB1, LINUCB)
TUNED_ON = "small_multiple_seed0"  # margins and starts were chosen on it, so that it is no case here


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that are summed up together, by geometric mean. `most` and `worst`: targets of the regret, per cent."""

    name: str
    cases: tuple[Case, ...]
    measures: tuple[str, ...] = MEASURES
    selectors: tuple[str, ...] = SELECTORS
    most: float | None = None
    worst: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One run, made by a process: `selector` is one of the names above, or a composition."""

    case: Case
    selector: str
    measure: str

    def ran(self) -> Ran:
        """Return what it cost."""
        if self.selector == AUTOPILOT:
            return flown(self.case, self.measure)
        if self.selector == LABEL:
            names = phase_names(self.case.seed)
            return labelled(self.case, {name: best_by_label(self.case, name, self.measure) for name in names})
        if self.selector in SELECTORS:
            return selected(self.case, self.measure, self.selector)
        return fixed(self.case, self.selector)


Results = Mapping[Task, Ran]


def groups(quick: bool) -> Iterator[Group]:
    """Yield what is measured."""
    if quick:
        yield Group("suite, the four, sigma 0.5 (quick)", alone(QUICK, 0.5, POSTERS), measures=("mean_jct",))
        return
    for sigma in SIGMAS:
        most, worst = (2.0, 10.0) if sigma < 1 else (5.0, None)
        yield Group(f"suite, wider, sigma {sigma:g}", alone(WORKLOADS, sigma, WIDER), most=most, worst=worst)
        phased = tuple(Case("phases", PHASE_JOBS, sigma, WIDER, seed) for seed in PHASE_SEEDS)
        every = (*SELECTORS, LABEL)
        yield Group(f"phases, wider, sigma {sigma:g}", phased, selectors=every, most=most, worst=worst)
    yield Group("suite, the four, sigma 0.5", alone(WORKLOADS, 0.5, POSTERS), most=2.0, worst=10.0)
    yield from of_streams()


def alone(workloads: Iterable[str], sigma: float, candidates: tuple[str, ...]) -> tuple[Case, ...]:
    """Return a case for each of these workloads of the suite."""
    return tuple(Case(name, JOBS[name.partition("-")[0]], sigma, candidates) for name in workloads)


def of_streams() -> Iterator[Group]:
    """Yield the streams of GPU clusters, if they are there."""
    if not has_streams():
        print("left out: streams of GPU clusters; GAVEL_DATA names no folder that has them", file=sys.stderr)
        return
    for published, name, most in ((False, "real streams", 3.0), (True, "published streams", 2.0)):
        names = [each for each in STREAMS if each.startswith("published") is published]
        cases = tuple(Case(each, STREAM_JOBS, 0.0, OF_GANGS) for each in names)
        yield Group(f"{name}, sigma 0", cases, selectors=(AUTOPILOT, RANDOM), most=most)
        if not published:
            yield Group("real streams, tail", cases, ("tail_slowdown",), (AUTOPILOT, RANDOM), most=15.0)


def rows(quick: bool, table: str = "") -> Iterator[Row]:
    """Yield the figures of each group as it is done, and write its table; of one `table` only, if that is named."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for group in (each for each in groups(quick) if table in ("", each.name)):
            tasks = list(dict.fromkeys(tasks_of(group)))
            results = dict(zip(tasks, pool.map(Task.ran, tasks), strict=True))
            lines = lines_of(group, results)
            evaluation_page.write(group.name, group.name, lines, PAGE, by="bench-autopilot")
            yield from figures_of(group, results)


def tasks_of(group: Group) -> Iterator[Task]:
    """Yield the runs of a group; one under a fixed composition serves all measures."""
    for case in group.cases:
        yield from (Task(case, candidate, "") for candidate in case.candidates)
        yield from (Task(case, name, measure) for name in group.selectors for measure in group.measures)


def over_best(case: Case, measure: str, run_costs: Mapping[str, float], results: Results) -> float:
    """Return the cost of a run over that of the best fixed composition."""
    best = min(results[Task(case, candidate, "")].costs[measure] for candidate in case.candidates)
    return run_costs[measure] / best


def ratios(group: Group, name: str, measure: str, results: Results) -> list[float]:
    """Return, for each case, the cost over the best fixed one's of a selector or a fixed composition."""
    of = measure if name in (*SELECTORS, LABEL) else ""
    return [over_best(case, measure, results[Task(case, name, of)].costs, results) for case in group.cases]


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def lines_of(group: Group, results: Results) -> list[list[str]]:
    """Return the table of a group as text, its heads first: a line for each selector and each fixed composition."""
    lines = [["", *(f"{measure}: mean (worst), n = {len(group.cases)}" for measure in group.measures), "switches"]]
    for name in (*group.selectors, *group.cases[0].candidates):
        values = [ratios(group, name, measure, results) for measure in group.measures]
        cells = [f"{geometric(each):.3f} ({max(each):.3f})" for each in values]
        runs = [results[task].switches for task in results if task.selector == name]
        lines.append([name, *cells, f"{np.mean(runs):.1f}" if name in (*SELECTORS, LABEL) else ""])
    return lines


def figures_of(group: Group, results: Results) -> Iterator[Row]:
    """Yield the regret of the autopilot and how much better it is than each other selector, and what decisions took."""
    for measure in group.measures:
        values = np.array(ratios(group, AUTOPILOT, measure, results))
        start = f"{group.name}, {measure}"
        yield Row(f"{start}: regret, mean of {len(values)}", 100 * (geometric(values.tolist()) - 1), "%", group.most)
        yield Row(f"{start}: regret, worst", 100 * (float(values.max()) - 1), "%", group.worst)
        for name in (each for each in group.selectors if each != AUTOPILOT):
            saved = 1 - geometric((values / np.array(ratios(group, name, measure, results))).tolist())
            yield Row(f"{start}: better than {name}", 100 * saved, "%")
        yield from _over_single(group, measure, results)
        for case, value in zip(group.cases, values.tolist(), strict=True):
            yield Row(f"{start}: {case.name} {case.seed}: over the best", value, "ratio", is_detail=True)
    decision_s = [each for ran in results.values() for each in ran.decision_s]
    yield Row(f"{group.name}: a decision, median", float(np.median(decision_s)), "CPU s")
    yield Row(f"{group.name}: a decision, p95", float(np.quantile(decision_s, 0.95)), "CPU s")


def _over_single(group: Group, measure: str, results: Results) -> Iterator[Row]:
    """Yield what is saved over the one composition that is best over the whole group."""
    single = {name: geometric(ratios(group, name, measure, results)) for name in group.cases[0].candidates}
    best = min(single, key=lambda name: single[name])
    saved = 1 - geometric(ratios(group, AUTOPILOT, measure, results)) / single[best]
    yield Row(f"{group.name}, {measure}: better than the single best, {best}", 100 * saved, "%")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--table", default="", choices=[each.name for each in groups(False)])
    chosen, others = parser.parse_known_args()
    run("The autopilot over the best composition in hindsight", partial(rows, table=chosen.table), others)


if __name__ == "__main__":
    main()
