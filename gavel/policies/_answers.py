"""Checks what a policy answered before a round is planned from it: an operator's own policy may answer anything."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.programs import names
from gavel.policies.programs.pairs import named_pairs
from gavel.policies.programs.program import MOST_VIOLATION
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray

MOST_NOTES = 100_000


def accepted(answer: object, problem: AllocationProblem, policy: str) -> Allocation:
    """Return `answer` as an allocation of `problem`, made of plain numbers, texts and arrays only.

    Raises SolveFailed, which says what is wrong: it is no allocation, is of other jobs or types, or breaks a limit.
    """
    if not isinstance(answer, Allocation):
        raise SolveFailed(f"{policy} answered with {type(answer).__name__}, which is no Allocation")
    try:
        return _plain(answer, problem)
    except SolveFailed as error:
        raise SolveFailed(f"{policy} gave an answer that cannot be used: {error}") from error
    except Exception as error:  # its fields may be anything
        raise SolveFailed(f"{policy} gave an answer that cannot be read: {type(error).__name__}: {error}") from error


def _plain(answer: Allocation, problem: AllocationProblem) -> Allocation:
    named = _named(answer, problem)
    fractions = _fractions(answer, named)
    violation = measures.violation(named, fractions)
    if not violation <= MOST_VIOLATION:
        raise SolveFailed(_broken(named, fractions, violation))
    gap = answer.certificate.dual_gap
    return Allocation(
        combinations=answer.combinations,
        accelerator_types=problem.accelerator_types,
        time_fraction=fractions,
        certificate=Certificate(primal_violation=violation, dual_gap=None if gap is None else float(gap)),
        policy=_text(answer.policy, "policy"),
        solver=_text(answer.solver, "solver"),
        solve_time_s=_number(answer.solve_time_s, "solve_time_s"),
        notes=tuple((_job(job, problem), _text(note, "a note")) for job, note in answer.notes[:MOST_NOTES]),
        warm_start={_text(key, "a key of warm_start"): _value(each) for key, each in answer.warm_start.items()},
    )


def _named(answer: Allocation, problem: AllocationProblem) -> AllocationProblem:
    """The problem with one combination for each row of the answer."""
    if tuple(answer.accelerator_types) != problem.accelerator_types:
        raise SolveFailed(f"it is for the types {answer.accelerator_types!r}, not {problem.accelerator_types!r}")
    own, extra = len(problem.combinations), answer.combinations[len(problem.combinations) :]
    if answer.combinations[:own] != names.of_combinations(problem):
        raise SolveFailed("its rows are not the jobs of the problem, in their order")
    if not extra:
        return problem
    job_ids = set(problem.job_ids)
    pairs = {frozenset(pair) for pair in extra}
    if problem.pair_rates is None or len(pairs) < len(extra) or not all(len(p) == 2 and p <= job_ids for p in pairs):
        raise SolveFailed("it has rows beyond those of the problem that are no pairs of its jobs")
    return named_pairs(problem, extra)


def _fractions(answer: Allocation, named: AllocationProblem) -> FloatArray:
    fractions = np.array(answer.time_fraction, dtype=np.float64)
    wanted = (len(named.combinations), len(named.accelerator_types))
    if fractions.shape != wanted:
        raise SolveFailed(f"time_fraction has shape {fractions.shape}, wanted {wanted}")
    return fractions


def _broken(named: AllocationProblem, fractions: FloatArray, violation: float) -> str:
    if not np.isfinite(fractions).all():
        return "time_fraction holds numbers that are not finite"
    if fractions.min() < -MOST_VIOLATION:
        return f"time_fraction holds {fractions.min():g}; no time is below 0"
    busy = measures.time_of_jobs(named, fractions)
    if busy.max() > 1 + MOST_VIOLATION:
        return f"job {named.job_ids[int(busy.argmax())]} is to run {busy.max():g} of its time; 1 is all"
    if np.abs(fractions[~measures.can_run(named)]).max(initial=0.0) > MOST_VIOLATION:
        return "it gives time on a type where the job cannot run"
    return f"it holds more workers than there are, by {violation:.1%} of a type"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise SolveFailed(f"{what} is {type(value).__name__}, wanted a text")
    return str(value)


def _number(value: Any, what: str) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise SolveFailed(f"{what} is {number}, wanted a finite number")
    return number


def _job(job_id: object, problem: AllocationProblem) -> str:
    if job_id not in problem.job_ids:
        raise SolveFailed(f"it has a note on {job_id!r}, which is no job of the problem")
    return str(job_id)


def _value(value: Any) -> Any:
    """A value of a warm start, as the store keeps it: JSON or an array of numbers."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return np.array(value)
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if isinstance(value, Mapping):
        return {_text(key, "a key of warm_start"): _value(each) for key, each in value.items()}
    raise SolveFailed(f"warm_start holds {type(value).__name__}; it may hold JSON values and arrays of numbers")
