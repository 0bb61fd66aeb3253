"""Which training library a script uses, and the lines that make it preemptible: read from its text, never run."""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

GUIDE = "docs/your-first-script.md"


@dataclass(frozen=True, slots=True)
class Advice:
    """`framework` in words; `changed` the whole text of the script with the lines changed, None: see `hint`."""

    framework: str
    changed: str | None
    hint: str = ""


def advice_for(text: str) -> Advice:
    """Return what to do with a script. Raise SyntaxError for a text that is no Python."""
    tree = ast.parse(text)
    imported = {name.split(".")[0] for node in ast.walk(tree) for name in _imported(node)}
    if "gavel_runtime" in imported:
        return Advice("gavel_runtime", None, "it uses gavel_runtime already; try it with: gavel run")
    for library, advise in _ADVISERS.items():
        if library in imported:
            return advise(_Script(text, tree))
    return Advice("a plain loop", None, _PLAIN)


def patch(name: str, before: str, after: str) -> str:
    """Return the unified diff that `patch -p1` and `git apply` take."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    return "".join(lines)


_PLAIN = (
    "give it two functions that save and load its state, and take the steps from job.steps:\n"
    "    from gavel_runtime import job\n"
    "    for step in job.steps(checkpoint=save, restore=load, total=1000):"
)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


class _Script:
    """A script's text and syntax tree, and edits that are applied from its end to its beginning."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.tree = tree
        self._lines = text.splitlines(keepends=True)
        self._edits: list[tuple[int, int, int, str]] = []

    def text_of(self, node: ast.expr) -> str:
        """Return the expression on one line."""
        return ast.unparse(node)

    def replace(self, node: ast.expr, new: str) -> None:
        """Replace an expression that stands on one line."""
        self._edits.append((node.lineno - 1, node.col_offset, node.end_col_offset or 0, new))

    def insert(self, before: ast.stmt, line: str) -> None:
        """Put a line before the statement, as far in as it is."""
        self._edits.append((before.lineno - 1, 0, 0, " " * before.col_offset + line + "\n"))

    def add_import(self, line: str) -> None:
        """Put an import after the last one at the top."""
        last = [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)][-1]
        self._edits.append((last.end_lineno or last.lineno, 0, 0, line + "\n"))

    def changed(self) -> str:
        """Return the text with all edits."""
        lines = [*self._lines, ""]
        for row, begin, end, new in sorted(self._edits, reverse=True):
            line = lines[row].encode()
            lines[row] = (line[:begin] + new.encode() + line[end:]).decode()
        return "".join(lines)

    def calls(self, name: str) -> Iterator[tuple[str, ast.Call]]:
        """Yield (variable, call) for each assignment of a call of something named so, `module.name` too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                called = ast.unparse(node.value.func)
                if called.split(".")[-1] == name or called.startswith(name):
                    yield ast.unparse(node.targets[0]), node.value

    def method_calls(self, owner: str, name: str) -> list[ast.Call]:
        """Return the calls of `owner.name(..)`."""
        wanted = f"{owner}.{name}"
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == wanted]

    def statement_with(self, inner: ast.expr) -> ast.stmt:
        """Return the smallest statement that holds the expression."""
        holders = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and inner in ast.walk(node)]
        return max(holders, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


def _with_argument(call: ast.Call, name: str, value: str) -> str | None:
    """Return the call's text with one more keyword argument, on one line; None if it has that argument."""
    if any(keyword.arg == name for keyword in call.keywords):
        return None
    return f"{ast.unparse(call)[:-1]}, {name}={value})"


def _transformers(script: _Script) -> Advice:
    hint = (
        "gavel = GavelCallback()    # from gavel_runtime.transformers\n"
        "Trainer(.., callbacks=[gavel]); trainer.train(resume_from_checkpoint=gavel.checkpoint)"
    )
    made = [each for name in ("Trainer", "Seq2SeqTrainer", "SFTTrainer") for each in script.calls(name)]
    trains = script.method_calls(made[0][0], "train") if len(made) == 1 else []
    new = _with_argument(made[0][1], "callbacks", "[gavel]") if len(made) == 1 else None
    resumed = _with_argument(trains[0], "resume_from_checkpoint", "gavel.checkpoint") if len(trains) == 1 else None
    if new is None or resumed is None or not all(_is_on_one_line(each) for each in (made[0][1], trains[0])):
        return Advice("Hugging Face Trainer", None, hint)
    script.add_import("from gavel_runtime.transformers import GavelCallback")
    script.insert(script.statement_with(made[0][1]), "gavel = GavelCallback()")
    script.replace(made[0][1], new)
    script.replace(trains[0], resumed.replace("(, ", "("))
    return Advice("Hugging Face Trainer", script.changed())


def _torch(script: _Script) -> Advice:
    hint = (
        "run = checkpointed(loader=.., epochs=.., model=.., optimizer=..)    # from gavel_runtime.torch\n"
        "for epoch in run.epochs():  for batch in run.batches():"
    )
    loops = [loop for loop in _epoch_loops(script.tree) if _is_on_one_line(loop[0].iter) and _is_on_one_line(loop[2])]
    states = _states(script)
    is_clear = len(loops) == 1 and {"model", "optimizer"} <= states.keys()
    if not is_clear or not _are_there(script.tree, loops[0][0], states):
        return Advice("PyTorch", None, hint)
    outer, epochs, batches = loops[0]
    given = ", ".join(f"{name}={value}" for name, value in states.items())
    call = f"run = checkpointed(loader={script.text_of(batches)}, epochs={script.text_of(epochs)}, {given})"
    script.add_import("from gavel_runtime.torch import checkpointed")
    script.insert(outer, call)
    script.replace(outer.iter, "run.epochs()")
    script.replace(batches, "run.batches()")
    return Advice("PyTorch", script.changed())


def _epoch_loops(tree: ast.Module) -> Iterator[tuple[ast.For, ast.expr, ast.expr]]:
    """Yield (loop, number of epochs, loader) of each `for .. in range(n)` with one loop over a name directly in it."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1):
            continue
        loops = [each for each in node.body if isinstance(each, ast.For)]
        inner = [each for each in loops if isinstance(each.iter, ast.Name | ast.Attribute)]
        if ast.unparse(node.iter.func) == "range" and len(inner) == 1:
            yield node, node.iter.args[0], inner[0].iter


def _are_there(tree: ast.Module, loop: ast.For, states: dict[str, str]) -> bool:
    """Return whether the loop's own function, or the module, has all names that the states begin with."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and loop in ast.walk(node)]
    own = [node for function in functions for node in ast.walk(function)]
    names = {node.arg for node in own if isinstance(node, ast.arg)}
    inside = {id(node) for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) for node in ast.walk(each)}
    top = [node for node in ast.walk(tree) if id(node) not in inside]
    names |= {node.id for node in (*own, *top) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {value.split(".")[0] for value in states.values()} <= names


def _states(script: _Script) -> dict[str, str]:
    """Return {model, optimizer, scheduler, scaler: expression} as far as the script has exactly one of each."""
    states: dict[str, str] = {}
    modules = {"optimizer": "torch.optim.", "scheduler": "torch.optim.lr_scheduler.", "scaler": "torch.amp.Grad"}
    for name, module in modules.items():
        made = [
            (variable, call)
            for variable, call in script.calls(module)
            if name != "optimizer" or "lr_scheduler" not in ast.unparse(call.func)
        ]
        if len(made) == 1:
            states[name] = made[0][0]
            if name == "optimizer" and made[0][1].args:
                states["model"] = ast.unparse(made[0][1].args[0]).removesuffix(".parameters()")
    return states if states.get("model", "(").replace(".", "_").isidentifier() else {}


def _lightning(script: _Script) -> Advice:
    return Advice(
        "Lightning",
        None,
        "gavel = GavelCallback(loader)    # from gavel_runtime.lightning\n"
        "lightning.Trainer(.., callbacks=[gavel]); trainer.fit(model, gavel.loader, ckpt_path=gavel.checkpoint)",
    )


def _jax(script: _Script) -> Advice:
    return Advice(
        "JAX",
        None,
        "run = checkpointed((params, opt_state), total=STEPS)    # from gavel_runtime.jax\n"
        "for step in run.steps():  params, opt_state = run.state  ..  run.state = params, opt_state",
    )


def _keras(script: _Script) -> Advice:
    return Advice(
        "Keras",
        None,
        "gavel = GavelCallback(model, epochs=N)    # from gavel_runtime.keras\n"
        "model.fit(.., epochs=N, initial_epoch=gavel.initial_epoch, callbacks=[gavel])",
    )


def _is_on_one_line(node: ast.expr) -> bool:
    return node.lineno == node.end_lineno


_ADVISERS = {
    "transformers": _transformers,
    "lightning": _lightning,
    "pytorch_lightning": _lightning,
    "keras": _keras,
    "jax": _jax,
    "torch": _torch,
}
