"""Patches of scripts with a loop of their own: PyTorch's epochs and batches, JAX's steps."""

import ast
from collections.abc import Iterator

from gavel.cli.batch_loops import BatchLoop, batch_loops
from gavel.cli.carried import Carried
from gavel.cli.loop_exits import Placed, exits
from gavel.cli.script_text import Advice, Script, is_on_one_line, keyword_of, set_by

OPTIMIZER, SCHEDULER = r"torch\.optim\.(?!lr_scheduler).+", r"torch\.optim\.lr_scheduler\..+"
TORCH_HINT = (
    "from gavel_runtime.torch import checkpointed\n"
    "run = checkpointed(loader=.., epochs=.., model=.., optimizer=..)    # before the loop over epochs\n"
    "for epoch in run.epochs():\n"
    "    for batch in run.batches():    # in place of the loader\n"
    "name gradients=model, too, where gradients are summed over several batches"
)
SCALER, ACCELERATOR = r"torch\.(cuda\.)?amp\.(grad_scaler\.)?GradScaler", r"accelerate\.Accelerator"


def torch(script: Script) -> Advice:
    """Return the patch of one loop over epochs with one loop over a loader in it, or in a function that it calls."""
    loops, states = list(batch_loops(script.tree)), _states(script)
    if len(loops) != 1 or not ({"accelerator"} <= states.keys() or {"model", "optimizer"} <= states.keys()):
        return Advice("PyTorch", None, TORCH_HINT)
    outer, inner, sums = loops[0].epochs, loops[0].statement, _accumulates(loops[0].statement)
    summed = states.get("model") or _accumulated_model(inner)
    named = (*outer.names, loops[0].outside, *states.values())
    has_all = all(script.has_all(each, outer.statement) for each in named)
    if not has_all or (sums and summed is None) or not all(map(is_on_one_line, (outer.place, inner.iter))):
        return Advice("PyTorch", None, TORCH_HINT)
    carried = Carried(script, loops[0], frozenset(ast.unparse(each) for each in states.values()))
    if obstacle := carried.obstacle or _inline_exit(script, carried.epoch_exits):
        return Advice("PyTorch", None, f"{obstacle}\n{TORCH_HINT}")
    run = loops[0].owner + script.unused("run", "training", "gavel_run")
    given = {"loader": loops[0].outside, "epochs": outer.epochs, **states}
    given |= {"gradients": summed} if sums and summed is not None else {}
    arguments = ", ".join(f"{key}={ast.unparse(value)}" for key, value in given.items())
    values = ", ".join(carried.values) + ("," if len(carried.values) == 1 else "")
    script.add_import("from gavel_runtime.torch import checkpointed")
    script.insert(
        outer.statement, f"{run} = checkpointed({arguments}{f', values=lambda: ({values})' if values else ''})"
    )
    if values:
        script.insert(outer.statement, f"{values} = {run}.values")
    script.replace(outer.place, outer.with_run(run))
    for each in carried.epoch_exits:
        script.insert(each.statement, f"{run}.finish()")
    _take_batches(script, loops[0], run)
    return Advice("PyTorch", script.changed(), TORCH_HINT)


def _inline_exit(script: Script, left: list[Placed]) -> str:
    """Return a sentence on an exit that no line can be put ahead of; empty if there is none."""
    inline = [each.statement for each in left if not script.begins_its_line(each.statement)]
    return f"line {inline[0].lineno}: put `{ast.unparse(inline[0])}` on a line of its own" if inline else ""


def _take_batches(script: Script, loop: BatchLoop, run: str) -> None:
    """Have the loop take its batches of the run, which is given to the function that has the loop."""
    script.replace(loop.loader, f"{run}.batches()")
    _number_from_here(script, loop, run)
    for place in loop.given_to:
        script.insert_ahead(place, f"{run}, ")


def _number_from_here(script: Script, loop: BatchLoop, run: str) -> None:
    """Have `enumerate` go on with its numbers in the middle of an epoch."""
    done, iterated = f"{run}.first_batch", loop.statement.iter
    while isinstance(iterated, ast.Call) and iterated is not loop.loader:
        if ast.unparse(iterated.func) == "enumerate":
            first = iterated.args[1] if len(iterated.args) > 1 else keyword_of(iterated, "start")
            if first is None:
                script.insert_behind(iterated.args[0], f", {done}")
            else:
                script.insert_behind(first, f" + {done}")
        iterated = iterated.args[0]


def _accumulates(loop: ast.For) -> bool:
    """Return whether gradients are summed over several batches: they are in no `state_dict`."""
    nodes = list(ast.walk(loop))
    called = [node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return "accumulate" in called or any(
        isinstance(node, ast.If)
        and any(isinstance(each, ast.Mod) for each in ast.walk(node.test))
        and any(isinstance(each, ast.Attribute) and each.attr == "zero_grad" for each in ast.walk(node))
        for node in nodes
    )


def _accumulated_model(loop: ast.For) -> ast.expr | None:
    """Return the model of Accelerate's `accumulate(model)`; None where there is no such call, or several models."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    models = [each.args for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "accumulate"]
    is_clear = len(models) == 1 and len(models[0]) == 1 and isinstance(models[0][0], ast.Name | ast.Attribute)
    return models[0][0] if is_clear else None


def _counting_loops(tree: ast.AST) -> Iterator[tuple[ast.For, ast.expr]]:
    """Yield (loop, number) of each `for .. in range(number)`."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1):
            continue
        if ast.unparse(node.iter.func) == "range":
            yield node, node.iter.args[0]


def _states(script: Script) -> dict[str, ast.expr]:
    """Return the accelerator, or {model, optimizer, scheduler, scaler: expression}, where there is exactly one each."""
    made = {
        name: script.calls(pattern)
        for name, pattern in {
            "accelerator": ACCELERATOR,
            "optimizer": OPTIMIZER,
            "scheduler": SCHEDULER,
            "scaler": SCALER,
        }.items()
    }
    states = {name: _expression(each[0][0]) for name, each in made.items() if len(each) == 1}
    if "accelerator" in states:
        return {"accelerator": states["accelerator"]}
    models = {
        ast.unparse(node.func.value)
        for _, call in made["optimizer"]
        for node in ast.walk(call)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters"
    }
    if len(models) != 1 or any(len(each) > 1 for each in made.values()):
        return {}
    return {"model": _expression(models.pop()), **states}


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def jax(script: Script) -> Advice:
    """Return the patch of one loop over steps that carries its state in variables from one step to the next."""
    name, hint = (
        "JAX",
        "from gavel_runtime.jax import checkpointed\n"
        "run = checkpointed((params, opt_state), total=STEPS)    # before the loop\n"
        "params, opt_state = run.state\n"
        "for step in run.steps():\n"
        "    ..\n"
        "    run.state = params, opt_state    # at the end of each step",
    )
    loops = [(loop, total) for loop, total in _counting_loops(script.tree) if _carried(script, loop)]
    if len(loops) != 1 or not is_on_one_line(loops[0][0].iter):
        return Advice(name, None, hint)
    loop, total = loops[0]
    cut = exits(loop, continues=True)
    if obstacle := _draws(loop) or _inline_exit(script, cut):
        return Advice(name, None, f"{obstacle}\n{hint}")
    state = _carried(script, loop)
    variables = ", ".join(state) + ("," if len(state) == 1 else "")
    script.add_import("from gavel_runtime.jax import checkpointed")
    run = script.unused("run", "training", "gavel_run")
    script.insert(loop, f"{run} = checkpointed(({variables}), total={ast.unparse(total)})")
    script.insert(loop, f"{variables} = {run}.state")
    script.replace(loop.iter, f"{run}.steps()")
    for each in cut:
        script.insert(each.statement, f"{run}.state = {variables}")
        if not isinstance(each.statement, ast.Continue):
            script.insert(each.statement, f"{run}.finish()")
    script.insert_after(loop.body[-1], f"{run}.state = {variables}")
    return Advice(name, script.changed(), hint)


def _carried(script: Script, loop: ast.For) -> list[str]:
    """Return the variables with which a step begins as the one before has left them, in the order of their use."""
    names = _read_before_set(loop.body, set_by(loop.target))
    assigned = {name for statement in loop.body for node in ast.walk(statement) for name in set_by(node)}
    return [name for name in names if name in assigned & script.names_before(loop)]


def _read_before_set(body: list[ast.stmt], always_set: set[str]) -> list[str]:
    """Return the names that the statements read where no statement before is certain to have set them."""
    names: list[str] = []
    for statement in body:
        nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        updated = isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name)
        read = [node.id for node in nodes if isinstance(node.ctx, ast.Load) or updated]
        names += [name for name in read if name not in always_set and name not in names]
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            always_set = always_set | {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return names


def _draws(loop: ast.For) -> str:
    """Return a sentence on an iterator that a step draws from, whose position is not saved; empty if there is none."""
    for node in (node for statement in loop.body for node in ast.walk(statement)):
        if isinstance(node, ast.For) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "next"):
            return (
                f"line {node.lineno}: nothing saves how far the iterator is; take the batch by its step, batches[step]"
            )
    return ""
