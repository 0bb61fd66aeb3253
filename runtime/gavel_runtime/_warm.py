"""A program that is started before its lease: it loads its libraries, and runs once the lease has begun.

The supervisor starts `python -c ENTER script arguments` with GAVEL_WARM set, and writes the rank's environment to its
standard input when the lease begins. Until then nothing of the script is executed but its first import statements, as
far as they name installed libraries: what follows them in the script may depend on anything that the job does itself.
What such a library would load at its first use is loaded as well.
"""

import ast
import builtins
import contextlib
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from gavel_runtime._lease import wait_for_lease

OWN_PACKAGE = "gavel_runtime"
AT_FIRST_USE = {"torch": "torch._dynamo"}
"""What a library loads when it is first used: PyTorch its compiler, longer than itself, with the first optimizer."""


def main() -> None:
    """Load the libraries of the script in sys.argv[1], wait for the lease, and run it as `python script` does."""
    del sys.argv[0]
    script = sys.argv[0]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    load_libraries(Path(script).read_bytes(), _own_folders())
    _load_what_is_used_first()
    wait_for_lease()
    _run(os.path.abspath(script))


def load_libraries(source: bytes, own_folders: Sequence[str]) -> None:
    """Import what the script imports first, in its order, up to a module of its own. Raises what an import raises."""
    for statement in _first_imports(source):
        if not all(_is_library(name, own_folders) for name in _top_names(statement)):
            return
        exec(compile(ast.Module([statement], []), "<imports>", "exec"), {"__name__": OWN_PACKAGE})  # noqa: S102


def _load_what_is_used_first() -> None:
    """Load what the libraries that are there would load at their first use, where they have it."""
    for library, name in AT_FIRST_USE.items():
        if library in sys.modules:
            with contextlib.suppress(Exception):  # the script meets it, if it comes so far
                importlib.import_module(name)


def _first_imports(source: bytes) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements before the first other statement; a docstring may go before them."""
    for index, statement in enumerate(ast.parse(source).body):
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif index or not is_text:
            return


def _top_names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the first parts of the names of imported modules; "" for a relative one."""
    if isinstance(statement, ast.ImportFrom):
        return ["" if statement.level else (statement.module or "").partition(".")[0]]
    return [alias.name.partition(".")[0] for alias in statement.names]


def _is_library(name: str, own_folders: Sequence[str]) -> bool:
    """Return whether a module is installed, and not one of the job's own, which may do anything when it is imported."""
    if name == OWN_PACKAGE:
        return True
    own = PathFinder.find_spec(name, list(own_folders)) if name else None
    if not name or (own is not None and own.loader is not None and own.has_location):
        return False
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _own_folders() -> list[str]:
    """Return the folders of the job's own modules: that of the script, and those of its PYTHONPATH after ours."""
    return [sys.path[0], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)[1:])]


def _run(script: str) -> None:
    """Execute the script as the main module."""
    main_module = ModuleType("__main__")
    loader = SourceFileLoader("__main__", script)
    main_module.__dict__.update(__file__=script, __builtins__=builtins, __cached__=None, __loader__=loader)
    with io.open_code(script) as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    sys.modules["__main__"] = main_module
    exec(code, main_module.__dict__)  # noqa: S102
