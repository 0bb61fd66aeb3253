"""The floors, sizes and words of the code base, kept by tests."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(path for room in ("gavel", "api", "workloads", "runtime") for path in (ROOT / room).rglob("*.py"))
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
BANNED_MODULES = {"utils", "util", "helpers", "common", "misc", "manager"}


@cache
def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_a_room_imports_only_from_below() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout


def test_files_and_functions_stay_small() -> None:
    """One test looks at all files: a test for each takes longer than the look itself."""
    assert [path for path in PRODUCT if path.read_text().count("\n") > FILE_LINES_MAX] == []
    large = [(path, node) for path in PRODUCT for node in functions(path) if lines(node) > FUNCTION_LINES_MAX]
    assert [f"{path}:{node.lineno} {node.name}" for path, node in large] == []


def test_the_median_function_is_short() -> None:
    sizes = sorted(lines(node) for path in PRODUCT for node in functions(path))
    assert sizes[len(sizes) // 2] <= 12


def test_no_file_is_named_for_nothing_in_particular() -> None:
    assert [path for path in PRODUCT if path.stem in BANNED_MODULES] == []


def test_nothing_branches_on_being_simulated() -> None:
    pattern = re.compile(r"\bif\b[^\n]*\bsimulat(ing|ed|e)\b")
    assert [path for path in PRODUCT if pattern.search(path.read_text())] == []


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    heavy = ["cvxpy", "sqlalchemy", "fastapi", "numpy", "scipy", "uvicorn"]
    code = f"import sys, gavel.cli; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("room", ["slurm", "kubernetes"])
def test_an_agent_starts_without_the_heavy_libraries(room: str) -> None:
    """It starts on each node of each gang."""
    heavy = ["structlog", "httpx", "asyncio", "ssl", "fsspec", "websockets", "sqlalchemy", "rich"]
    code = f"import sys, gavel.backends.{room}.node; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
