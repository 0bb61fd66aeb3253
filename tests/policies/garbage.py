"""Files of an operator's own policies that answer with garbage, raise, or hang: texts to be written to a folder."""

HEAD = '''
import os, sys, threading
from dataclasses import dataclass, replace
from typing import ClassVar
import numpy as np
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.types import Allocation


@dataclass(frozen=True)
class Mine:
    """Misbehaves, or does as max-min fairness does."""

    name: ClassVar[str] = "mine"
    formula: ClassVar[str] = "none"
    source: ClassVar[str] = "ours"

    def allocate(self, problem):
        good = MaxMinFairness().allocate(problem)
        x = good.time_fraction
'''
TAIL = "\n\nPOLICY = Mine\n"


def policy(*lines: str) -> str:
    """The file of a policy whose `allocate` goes on with `lines`; `good` is a sound answer, `x` its fractions."""
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


GOOD = policy("return good")
ANSWERS = {  # name -> (line, what the failure says)
    "nan": ("return replace(good, time_fraction=x * np.nan)", "not finite"),
    "infinite": ("return replace(good, time_fraction=x + np.inf)", "not finite"),
    "negative": ("return replace(good, time_fraction=x - 2)", "below 0"),
    "more than all the time": ("return replace(good, time_fraction=x + 1)", "of its time; 1 is all"),
    "more workers than there are": ("return replace(good, time_fraction=np.eye(1, x.shape[1]).repeat(len(x), 0))",
                                    "more workers than there are"),
    "of another shape": ("return replace(good, time_fraction=x[:, :1])", "has shape"),
    "one row too few": ("return replace(good, time_fraction=x[1:])", "has shape"),
    "one number": ("return replace(good, time_fraction=0.5)", "has shape"),
    "texts for numbers": ("return replace(good, time_fraction=x.astype(str).astype(object) + 'x')", "ValueError"),
    "complex numbers": ("return replace(good, time_fraction=[[object()]])", "TypeError"),
    "other jobs": ("return replace(good, combinations=tuple(('not-' + n,) for n, in good.combinations))", "rows are"),
    "jobs in another order": ("return replace(good, combinations=good.combinations[::-1])", "rows are not the jobs"),
    "a job twice": ("return replace(good, combinations=good.combinations[:1] * len(x))", "rows are not the jobs"),
    "a pair of strangers": ("return replace(good, combinations=(*good.combinations, ('a', 'b')))", "rows beyond"),
    "other types": ("return replace(good, accelerator_types=('abacus',))", "it is for the types"),
    "nothing": ("return None", "NoneType, which is no Allocation"),
    "the fractions alone": ("return x", "ndarray, which is no Allocation"),
    "the class": ("return Allocation", "which is no Allocation"),
    "a refusal of the runner": ("return SystemExit, ('x',)", "tuple, which is no Allocation"),
    "no certificate": ("return replace(good, certificate=None)", "AttributeError"),
    "a note on a stranger": ("return replace(good, notes=(('nobody', 'hm'),))", "no job of the problem"),
    "notes of no texts": ("return replace(good, notes=((problem.job_ids[0], 7),))", "wanted a text"),
    "a function to remember": ("return replace(good, warm_start={'f': lambda: 1})", "warm_start holds function"),
    "a solver that is no text": ("return replace(good, solver=3)", "wanted a text"),
    "what nobody else can read": ("return replace(good, warm_start={'f': Mine()})", "warm_start holds Mine"),
}  # fmt: skip
RAISED = {
    "ZeroDivisionError": ("1 / 0", "raised ZeroDivisionError"),
    "SystemExit": ("sys.exit(0)", "raised SystemExit"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "GeneratorExit": ("raise GeneratorExit", "raised GeneratorExit"),
    "RecursionError": ("forever = lambda: forever(); return forever()", "raised RecursionError"),
    "InvariantViolated": (
        "from gavel.errors import InvariantViolated; raise InvariantViolated('i', 'd')", "raised InvariantViolated"),
    "LeadershipLost": ("from gavel.errors import LeadershipLost; raise LeadershipLost('me')", "raised LeadershipLost"),
    "its own error": ("raise type('Odd', (Exception,), {})('hm')", "raised Odd: hm"),
    "its own refusal": (
        "from gavel.errors import InvalidRequest; raise type('Odd', (InvalidRequest,), {})('x', 'hm')", "x: hm"),
    "a crash": ("os.abort()", "took its process down: signal SIGABRT"),
    "an end without a word": ("os._exit(7)", "took its process down: exit code 7"),
    "a hang": ("threading.Event().wait()", "took longer than"),
}  # fmt: skip
FILES = {  # a file that cannot even be loaded
    "a syntax error": ("def broken(:", "SyntaxError"),
    "an end at load": ("import sys; sys.exit(3)", "raised SystemExit"),
    "an interrupt at load": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "no policy": ("x = 1", "needs POLICY"),
    "a parameter of no type": (GOOD.replace("    name:", "    size: 'Nothing' = 1.0\n    name:"), "cannot be read"),
    "a missing file": (None, "there is no 'mine'"),
}
MISBEHAVIOUR = {
    **{f"answers: {name}": (policy(line), message) for name, (line, message) in ANSWERS.items()},
    **{f"raises: {name}": (policy(line), message) for name, (line, message) in RAISED.items()},
    **{f"file: {name}": each for name, each in FILES.items()},
}
