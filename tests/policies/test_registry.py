"""Policies are found by name, described, and told apart by their parameters."""

import re
import subprocess
import sys

import numpy as np
import pytest

from gavel.errors import InvalidRequest
from gavel.policies import registry
from gavel.policies.fifo import Fifo
from gavel.policies.max_min_fairness import MaxMinFairness
from tests.builders import a_problem


def test_every_policy_of_the_folder_is_listed_with_formula_source_and_parameters() -> None:
    listed = {info.name: info for info in registry.available()}
    core = {"equal_share", "fifo", "finish_time_fairness", "hierarchical", "max_min_fairness", "shortest_job_first"}
    assert core <= set(listed)
    assert all(info.formula and info.source for info in listed.values())
    assert all(re.fullmatch(r"Choose this when [^.]+\.", info.choose_when) for info in listed.values())
    assert [(p.name, p.default, p.choices) for p in listed["fifo"].parameters] == [
        ("backfill", "true", ("true", "false")),
        ("time_limit_s", "60", ()),
        ("agnostic", "false", ("true", "false")),
    ]


def test_a_name_with_parameters_loads_that_policy() -> None:
    assert registry.load("fifo") == Fifo()
    assert registry.load("max_min_fairness?water_filling=false&time_limit_s=5") == MaxMinFairness(
        water_filling=False, time_limit_s=5.0
    )


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("fifo", "fifo"),
        ("fifo?", "fifo"),
        ("fifo?backfill=true&time_limit_s=60.0", "fifo"),
        ("fifo?time_limit_s=5&backfill=false", "fifo?backfill=false&time_limit_s=5"),
        ("fifo?agnostic=false", "fifo"),
        ("hierarchical?agnostic=true", "hierarchical?agnostic=true"),
        ("weighted_priority?age=0&remaining_time=-1.50", "weighted_priority?remaining_time=-1.5"),
    ],
)
def test_specs_that_mean_the_same_policy_are_written_the_same(spec: str, canonical: str) -> None:
    assert registry.canonical(spec) == canonical
    assert registry.canonical(canonical) == canonical
    assert registry.load(spec) == registry.load(canonical)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lottery", "choose one of .*fifo"),
        ("fifo?colour=red", "no parameter 'colour'; choose one of backfill"),
        ("fifo?backfill=maybe", "choose one of true, false"),
        ("fifo?time_limit_s=-1", "positive number"),
        ("fifo?time_limit_s=nan", "positive number"),
        ("weighted_priority?age=inf", "finite number"),
        ("weighted_priority?height=1", "no parameter 'height'; choose one of"),
        ("short_and_long_apart?reserved=2", "between 0 and 1, as 0.2"),
        ("fifo?backfill", "write parameter=value"),
        ("fifo?backfill=true&backfill=false", "twice"),
    ],
)
def test_an_unknown_name_parameter_or_value_is_refused_with_the_choices(spec: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refusal:
        registry.load(spec)
    assert refusal.value.field == "policy"


def test_looking_policies_up_does_not_import_the_solvers() -> None:
    program = (
        "import sys\n"
        "from gavel.policies import registry\n"
        "registry.available(), registry.load('hierarchical'), registry.TIER_OBJECTIVES\n"
        "raise SystemExit('cvxpy' in sys.modules or 'scipy' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_objectives_of_a_tier_are_named_with_their_meaning() -> None:
    wanted = {"fairness", "fifo", "shortest_job_first", "throughput", "finish_time_fairness"}
    assert wanted <= set(registry.TIER_OBJECTIVES)
    assert all(registry.TIER_OBJECTIVES.values())


def test_an_agnostic_policy_spreads_each_job_over_the_types_like_their_workers() -> None:
    """Three jobs on 3 + 1 workers: all three always run, a quarter of the time on the second type.

    The fourth can use the first type only, and takes its worker there first: 2 + 1 are left for the three others.
    """
    three = registry.load("max_min_fairness?agnostic=true").allocate(a_problem([[4.0, 1.0]] * 3, [3, 1]))
    assert three.time_fraction == pytest.approx(np.tile([0.75, 0.25], (3, 1)))
    barred = a_problem([[4.0, 1.0]] * 3 + [[1.0, 0.0]], [3, 1])
    four = registry.load("max_min_fairness?agnostic=true").allocate(barred)
    assert four.time_fraction == pytest.approx(np.array([[2 / 3, 1 / 3]] * 3 + [[1.0, 0.0]]), abs=1e-6)
