"""Where a PyTorch script takes its batches: in the loop over epochs, or in a function or method that this one calls."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gavel.cli.epoch_loops import EpochLoop, epoch_loops
from gavel.cli.script_text import keyword_of, set_by

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class BatchLoop:
    """A loop over batches in a loop over epochs.

    `loader` is what it iterates; `outside` the same as the loop over epochs names it. `owner` is "self." where both are
    methods of one object. In `given_to` are the call and the parameters that the training has to be put ahead of.
    """

    epochs: EpochLoop
    statement: ast.For
    loader: ast.expr
    outside: ast.expr
    owner: str = ""
    given_to: tuple[ast.expr | ast.arg, ...] = ()


def batch_loops(tree: ast.Module) -> Iterator[BatchLoop]:
    """Yield each loop over epochs with the one loop over a loader in it, or in the one function there that trains.

    The loop over the loader may be over `enumerate(loader)` or `tqdm(loader)`, too. Of several the one counts that
    calls `backward`: others evaluate.
    """
    for epochs in epoch_loops(tree):
        inner = _over_loaders(epochs.statement.body)
        inner = inner if len(inner) == 1 else list(filter(_trains, inner))
        if len(inner) == 1:
            loader = _loader(inner[0].iter)
            yield BatchLoop(epochs, inner[0], loader, loader)
        elif not inner:
            yield from _in_one_function(tree, epochs)


def _in_one_function(tree: ast.Module, epochs: EpochLoop) -> Iterator[BatchLoop]:
    calls = [node for each in epochs.statement.body for node in ast.walk(each) if isinstance(node, ast.Call)]
    training = [
        (call, function, loop)
        for call in calls
        for function in _called(tree, epochs.statement, call)
        for loop in filter(_trains, _over_loaders(_unwrapped(function.body)))
    ]
    if len(training) == 1 and (loop := _of_function(tree, epochs, *training[0])):
        yield loop


def _of_function(
    tree: ast.Module, epochs: EpochLoop, call: ast.Call, function: Function, loop: ast.For
) -> BatchLoop | None:
    """Return the loop of a function; None where it is called elsewhere, too, or its loader is its own."""
    loader, is_method = _loader(loop.iter), isinstance(call.func, ast.Attribute)
    outside = _as_called(loader, call, function, is_method)
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if outside is None or calls.count(ast.unparse(call.func)) != 1:
        return None
    if is_method:
        return BatchLoop(epochs, loop, loader, outside, owner="self.")
    if not any(epochs.statement in ast.walk(each) for each in ast.walk(tree) if isinstance(each, Function)):
        return BatchLoop(epochs, loop, loader, outside)  # the training is a variable of the module
    parameters = [*function.args.posonlyargs, *function.args.args]
    if not (parameters and call.args) or isinstance(call.args[0], ast.Starred):
        return None
    return BatchLoop(epochs, loop, loader, outside, given_to=(parameters[0], call.args[0]))


def _called(tree: ast.Module, inside: ast.stmt, call: ast.Call) -> list[Function]:
    """Return the function of the module, or the method of the same object, that the call is of."""
    name = ast.unparse(call.func).rpartition(".")[2]
    if isinstance(call.func, ast.Name):
        scope = tree.body
    elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self":
        classes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and inside in ast.walk(each)]
        scope = [statement for each in classes for statement in each.body]
    else:
        return []
    return [each for each in scope if isinstance(each, Function) and each.name == name]


def _as_called(loader: ast.expr, call: ast.Call, function: Function, is_method: bool) -> ast.expr | None:
    """Return what the caller names as the loader of the function; None where the function makes it itself."""
    root = ast.unparse(loader).partition(".")[0]
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if root == "self" and is_method:
        return loader
    if root not in parameters:
        own = {name for node in ast.walk(function) for name in set_by(node)}
        return None if root in own else loader
    given = [*[None] * is_method, *call.args]
    position = parameters.index(root)
    if not isinstance(loader, ast.Name) or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    return given[position] if position < len(given) else keyword_of(call, root)


def _over_loaders(body: list[ast.stmt]) -> list[ast.For]:
    loops = [each for each in body if isinstance(each, ast.For)]
    return [each for each in loops if isinstance(_loader(each.iter), ast.Name | ast.Attribute)]


def _unwrapped(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements, with those of `with` blocks in place of these."""
    return [one for each in body for one in (_unwrapped(each.body) if isinstance(each, ast.With) else [each])]


def _loader(iterated: ast.expr) -> ast.expr:
    while isinstance(iterated, ast.Call) and iterated.args and ast.unparse(iterated.func) in ("enumerate", "tqdm"):
        iterated = iterated.args[0]
    return iterated


def _trains(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(loop))
