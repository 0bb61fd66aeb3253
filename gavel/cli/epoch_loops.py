"""The shapes in which scripts write their loop over epochs, and what takes each one's place."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gavel.cli.script_text import set_by

BARS = ("tqdm", "track")  # of tqdm and rich: what is iterated is their first argument
COUNTING_BARS = ("trange",)  # of tqdm: a bar over range(..)


@dataclass(frozen=True, slots=True)
class EpochLoop:
    """A loop over epochs: `place` is the expression that is replaced, `names` what has to be set before the loop."""

    statement: ast.For | ast.While
    place: ast.expr
    form: str
    first: str
    epochs: ast.expr
    names: tuple[ast.expr, ...]

    def with_run(self, run: str) -> str:
        """Return what takes the place, where `run` is the expression of the training."""
        return self.form.format(run=run, epochs=f"{run}.epochs({self.first})")


def epoch_loops(tree: ast.AST) -> Iterator[EpochLoop]:
    """Yield each loop that counts: over `range`, with `tqdm` or `enumerate` around it, `trange`, or a plain `while`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and (loop := _for_loop(node)):
            yield loop
        for body in (getattr(node, name, None) for name in ("body", "orelse")):
            if isinstance(body, list):
                yield from filter(None, map(_while_loop, [None, *body], body))


def _for_loop(loop: ast.For) -> EpochLoop | None:
    counted, form = loop.iter, "{epochs}"
    while isinstance(counted, ast.Call) and counted.args and _called(counted) in (*BARS, "enumerate"):
        if _called(counted) == "enumerate":
            if len(counted.args) > 1 or counted.keywords:
                return None
            form = "{epochs}, {run}.epoch"
        counted = counted.args[0]
    is_counted = isinstance(counted, ast.Call) and _called(counted) in ("range", *COUNTING_BARS)
    if not (is_counted and isinstance(counted, ast.Call)) or len(counted.args) not in (1, 2):
        return None
    first = counted.args[0] if len(counted.args) == 2 else ast.Constant(0)
    return _made(loop, counted, form, first, counted.args[-1])


def _while_loop(before: ast.stmt | None, loop: ast.stmt) -> EpochLoop | None:
    """Return `epoch = 0`, `while epoch < N:` .. `epoch += 1` as a loop; None for any other statements."""
    if not isinstance(loop, ast.While) or loop.orelse or not isinstance(loop.test, ast.Compare):
        return None
    test, last = loop.test, loop.body[-1]
    counter, step = ast.unparse(test.left), ast.unparse(last)
    if not isinstance(test.left, ast.Name) or step not in (f"{counter} += 1", f"{counter} = {counter} + 1"):
        return None
    if not isinstance(before, ast.Assign) or ast.unparse(before.targets[0]) != counter or _skips(loop):
        return None
    if [name for node in ast.walk(loop) for name in set_by(node)].count(counter) != 1 or len(test.ops) != 1:
        return None
    stop = test.comparators[0]
    if isinstance(test.ops[0], ast.LtE):
        stop = ast.BinOp(stop, ast.Add(), ast.Constant(1))
    elif not isinstance(test.ops[0], ast.Lt):
        return None
    place = ast.copy_location(ast.Name(counter), loop)
    place.end_lineno, place.end_col_offset = test.end_lineno, test.end_col_offset
    return _made(loop, place, f"for {counter} in {{epochs}}", before.value, stop)


def _made(statement: ast.For | ast.While, place: ast.expr, form: str, first: ast.expr, stop: ast.expr) -> EpochLoop:
    given = "" if ast.unparse(first) == "0" else ast.unparse(first)
    return EpochLoop(statement, place, form, given, _difference(stop, first), (first, stop))


def _difference(stop: ast.expr, first: ast.expr) -> ast.expr:
    """Return `stop - first`, as short as people write it: N for `range(1, N + 1)`."""
    if ast.unparse(first) == "0":
        return stop
    if isinstance(stop, ast.BinOp) and isinstance(stop.op, ast.Add) and ast.unparse(stop.right) == ast.unparse(first):
        return stop.left
    if isinstance(stop, ast.Constant) and isinstance(first, ast.Constant):
        return ast.Constant(stop.value - first.value)  # type: ignore[operator]  # of range: numbers
    return ast.BinOp(stop, ast.Sub(), first)


def _skips(loop: ast.While) -> bool:
    """Return whether a `continue` of this loop may go around its last statement."""
    nested = {id(node) for each in ast.walk(loop) if isinstance(each, ast.For) for node in ast.walk(each)}
    inner = {
        id(node)
        for each in loop.body
        for part in ast.walk(each)
        if isinstance(part, ast.While)
        for node in ast.walk(part)
    }
    return any(isinstance(node, ast.Continue) and id(node) not in nested | inner for node in ast.walk(loop))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
