"""Which training library a script uses, and the lines that make it preemptible: read from its text, never run."""

import ast
import difflib

from gavel.cli.framework_callbacks import keras, lightning, transformers
from gavel.cli.framework_loops import jax, torch
from gavel.cli.script_text import Advice, Script

GUIDE = "docs/your-first-script.md"


def advice_for(text: str) -> Advice:
    """Return what to do with a script. Raise SyntaxError for a text that is no Python."""
    tree = ast.parse(text)
    imported = {name.split(".")[0] for node in ast.walk(tree) for name in _imported(node)}
    if "gavel_runtime" in imported:
        return Advice("gavel_runtime", None, "it uses gavel_runtime already; try it with: gavel run")
    for library, advise in _ADVISERS.items():
        if library in imported and (advice := advise(Script(text, tree))):
            return advice
    return Advice("a plain loop", None, _PLAIN)


def patch(name: str, before: str, after: str) -> str:
    """Return the unified diff that `patch -p1` and `git apply` take."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


_PLAIN = (
    "give it two functions that save and load its state, and take the steps from job.steps:\n"
    "    from gavel_runtime import job\n"
    "    for step in job.steps(checkpoint=save, restore=load, total=1000):"
)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


_ADVISERS = {  # in this order: a script with a Trainer imports torch as well, and leaves the loop to the Trainer
    "transformers": transformers,
    "lightning": lightning,
    "pytorch_lightning": lightning,
    "keras": keras,
    "jax": jax,
    "torch": torch,
}
