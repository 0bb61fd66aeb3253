"""What became of a set of jobs over a stretch of time, real or simulated, as numbers that goals are computed from."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.problem import ClusterColumns
from gavel.simulator.active import Active, ActiveState
from gavel.simulator.chosen_sizes import ChosenSizes
from gavel.simulator.outcome import Scenario
from gavel.simulator.report import JobResult
from gavel.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """n jobs from `from_s` to `until_s`, in order of arrival; arrays (n,), instants in seconds.

    `ended_at_s`: their end, or `until_s` if that is earlier. `ideal_s`: the whole job alone on its fastest type;
    `isolated_s`: on an equal share of the cluster. `cost_usd`: for the workers held in this time. `longest_wait_s`:
    of a job, from its submission to its first start. `user` and `tier`: a number for each user and tier; `tiers` are
    the names of tiers by their numbers.
    """

    from_s: float
    until_s: float
    indices: IntArray
    submitted_at_s: FloatArray
    ended_at_s: FloatArray
    ideal_s: FloatArray
    isolated_s: FloatArray
    deadline_at_s: FloatArray
    cost_usd: FloatArray
    user: IntArray
    tier: IntArray
    tiers: tuple[str, ...] = ()
    longest_wait_s: float = 0.0

    def elapsed_s(self, at_s: FloatArray) -> FloatArray:
        """Return the time since each job's submission, (n,), at these instants (n,); 0 before."""
        return np.maximum(0.0, at_s - self.submitted_at_s)

    def of_tier(self, name: str) -> "Course":
        """Return the course of the jobs of a tier."""
        is_of_it = self.tier == (self.tiers.index(name) if name in self.tiers else -1)
        return replace(self, **{column: getattr(self, column)[is_of_it] for column in COLUMNS})

    def by_user(self) -> "Course":
        """Return the course of users as if each had one job: from their first submission to their last end."""
        if not len(self.user):
            return self
        _, first, of = np.unique(self.user, return_index=True, return_inverse=True)

        def most(values: FloatArray) -> FloatArray:
            return np.asarray(np.array([values[of == place].max() for place in range(len(first))]))

        return replace(
            self,
            indices=self.indices[first],
            user=self.user[first],
            tier=self.tier[first],
            submitted_at_s=-most(-self.submitted_at_s),
            ended_at_s=most(self.ended_at_s),
            ideal_s=most(self.ideal_s),
            isolated_s=most(self.isolated_s),
            deadline_at_s=most(self.deadline_at_s),
            cost_usd=np.bincount(of, self.cost_usd).astype(np.float64),
        )

    def until(self, until_s: float, jobs_seen: int) -> "Course":
        """Return the course up to an earlier instant, of the first `jobs_seen` jobs of the trace only.

        Money is cut as if it were spent evenly until a job's end.
        """
        rows = self.indices < jobs_seen
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        began_s, whole_s = np.maximum(self.from_s, columns["submitted_at_s"]), columns["ended_at_s"]
        columns["ended_at_s"] = np.maximum(began_s, np.minimum(whole_s, until_s))
        columns["cost_usd"] = columns["cost_usd"] * np.clip(
            (columns["ended_at_s"] - began_s) / np.maximum(whole_s - began_s, 1e-9), 0.0, 1.0
        )
        return replace(self, until_s=until_s, **columns)


COLUMNS = (
    "indices",
    "submitted_at_s",
    "ended_at_s",
    "ideal_s",
    "isolated_s",
    "deadline_at_s",
    "cost_usd",
    "user",
    "tier",
)


class Numbers:
    """Numbers for the users and tiers of a course, each given at the first sight of a name."""

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._tiers: dict[str, int] = {}

    def of(self, user: str, tier: str) -> tuple[int, int]:
        """Return the number of the user and that of the tier."""
        return self._users.setdefault(user, len(self._users)), self._tiers.setdefault(tier, len(self._tiers))

    @property
    def tiers(self) -> tuple[str, ...]:
        """Return the names of the tiers by their numbers."""
        return tuple(self._tiers)


def course_of(
    rows: Iterable[JobResult],
    left: ActiveState,
    scenario: Scenario,
    *,
    from_s: float,
    until_s: float,
    spent: ActiveState | None = None,
) -> Course:
    """Return the course of the jobs that ended (`rows`) and of those that are `left` at `until_s`.

    What jobs had cost before, as `spent` has it, is taken off.
    """
    numbers, price_usd_per_hour = Numbers(), ClusterColumns.of(scenario.cluster).price_usd_per_hour
    ended = [_of_row(row, numbers) for row in rows if row.finished_at_s is not None and row.finished_at_s > from_s]
    rest = _of_left(left, scenario, price_usd_per_hour, numbers)
    lines = sorted([*ended, *rest])
    table = np.array(lines, dtype=np.float64).reshape(len(lines), len(COLUMNS))
    columns: dict[str, Any] = dict(zip(COLUMNS, table.T, strict=True))
    before = _cost_so_far(spent, price_usd_per_hour) if spent else {}
    columns["cost_usd"] = columns["cost_usd"] - np.array([before.get(int(each), 0.0) for each in columns["indices"]])
    columns["ended_at_s"] = np.minimum(columns["ended_at_s"], until_s)
    return Course(from_s=from_s, until_s=until_s, tiers=numbers.tiers, **columns | _integers(columns))


def course_of_rows(rows: Iterable[JobResult]) -> Course:
    """Return the course of a whole run, whose jobs have all ended."""
    numbers = Numbers()
    lines = sorted(_of_row(row, numbers) for row in rows)
    columns: dict[str, Any] = dict(zip(COLUMNS, np.array(lines, dtype=np.float64).T, strict=True))
    from_s, until_s = float(columns["submitted_at_s"].min()), float(columns["ended_at_s"].max())
    return Course(from_s=from_s, until_s=until_s, tiers=numbers.tiers, **columns | _integers(columns))


def _integers(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: columns[name].astype(np.int64) for name in ("indices", "user", "tier")}


def _of_row(row: JobResult, numbers: Numbers) -> tuple[float, ...]:
    """Return the columns of a job that has ended."""
    jct_s, ideal_s = row.jct_s or 0.0, max(row.fastest_s or 0.0, 1e-9)
    isolated_s = jct_s / row.rho if row.rho else ideal_s
    deadline_at_s = math.inf if row.deadline_at_s is None else row.deadline_at_s
    end_s = row.submitted_at_s + jct_s
    of = numbers.of(row.user, row.tier)
    return int(row.id), row.submitted_at_s, end_s, ideal_s, isolated_s, deadline_at_s, row.cost_usd, *of


def _of_left(left: ActiveState, scenario: Scenario, price: FloatArray, numbers: Numbers) -> list[tuple[float, ...]]:
    """Return the columns of the jobs that have not ended."""
    if not left.jobs:
        return []
    active, layout = Active.of(left), Layout(scenario.cluster)
    if scenario.is_elastic:
        ChosenSizes(active, layout, scenario)  # their isolated share is over all sizes
    slow = active.isolated_rate(layout.capacity)
    ideal_s = active.total_steps / active.fastest_rate
    costs = _cost_so_far(left, price)
    return [
        (
            index,
            submitted_s,
            math.inf,
            alone_s,
            steps / rate,
            deadline_s,
            costs[index],
            *numbers.of(spec.user, spec.tier),
        )
        for index, spec, submitted_s, alone_s, steps, rate, deadline_s in zip(
            left.indices,
            [job.spec for job in left.jobs],
            active.submitted_at_s.tolist(),
            ideal_s.tolist(),
            active.total_steps.tolist(),
            slow.tolist(),
            active.deadline_at_s.tolist(),
            strict=True,
        )
    ]


def _cost_so_far(state: ActiveState, price: FloatArray) -> dict[int, float]:
    """Return what the workers of each job have cost so far, USD by the job's place in the trace."""
    return dict(zip(state.indices, Active.of(state).cost_usd(price).tolist(), strict=True))
