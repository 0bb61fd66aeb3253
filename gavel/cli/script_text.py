"""A training script as text and syntax tree: what it calls and has, and edits that leave the rest as it is."""

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

Edit = tuple[int, int, int, str]  # line, first column, last column, new text


@dataclass(frozen=True, slots=True)
class Advice:
    """`framework` in words; `changed` the whole text of the script with the lines changed, None: see `hint`."""

    framework: str
    changed: str | None
    hint: str = ""


class Script:
    """A script's text and syntax tree, and edits that are applied from its end to its beginning."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.tree = tree
        self._lines = text.splitlines(keepends=True)
        self._edits: list[Edit] = []
        self._origins = dict(each for node in ast.walk(tree) for each in _origins(node))

    def replace(self, node: ast.expr, new: str) -> None:
        """Replace an expression that stands on one line."""
        self._edits.append((node.lineno - 1, node.col_offset, node.end_col_offset or 0, new))

    def insert_behind(self, node: ast.expr, text: str) -> None:
        """Put a text directly behind an expression."""
        self._edits.append(_at((node.end_lineno or node.lineno) - 1, node.end_col_offset or 0, text))

    def insert_ahead(self, node: ast.expr | ast.arg, text: str) -> None:
        """Put a text directly before an expression or a parameter."""
        self._edits.append(_at(node.lineno - 1, node.col_offset, text))

    def insert(self, before: ast.stmt, line: str) -> None:
        """Put a line before the statement, as far in as it is."""
        row = min([before.lineno, *(each.lineno for each in getattr(before, "decorator_list", []))]) - 1
        self._edits.append((row, 0, 0, " " * before.col_offset + line + "\n"))

    def insert_after(self, statement: ast.stmt, line: str) -> None:
        """Put a line after the statement, as far in as it is."""
        row = statement.end_lineno or statement.lineno
        if row == len(self._lines) and not self._lines[-1].endswith("\n"):
            self._lines[-1] += "\n"
        self._edits.append((row, 0, 0, " " * statement.col_offset + line + "\n"))

    def add_import(self, line: str) -> None:
        """Put an import after the last one at the top."""
        imports = [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        self.insert_after(imports[-1], line)

    def add_argument(self, call: ast.Call, name: str, value: str) -> None:
        """Put a keyword argument behind the last one of the call, on a line of its own where the last one has one."""
        last = _last_argument(call)
        if last is None:
            self._edits.append(_at((call.end_lineno or 0) - 1, (call.end_col_offset or 0) - 1, f"{name}={value}"))
            return
        row, column = (last.end_lineno or 0) - 1, last.end_col_offset or 0
        indent = self._lines[last.lineno - 1].encode()[: last.col_offset].decode()
        between = ",\n" + indent if not indent.strip() else ", "
        self._edits.append(_at(row, column, f"{between}{name}={value}"))

    def append(self, items: ast.List, value: str) -> None:
        """Put a value behind the last one of a list."""
        separator = ", " if items.elts else ""
        end = items.elts[-1] if items.elts else None
        row = ((end or items).end_lineno or 0) - 1
        column = (end.end_col_offset or 0) if end else (items.end_col_offset or 0) - 1
        self._edits.append(_at(row, column, separator + value))

    def changed(self) -> str | None:
        """Return the text with all edits; None if it would be no Python."""
        lines = [*self._lines, ""]
        order = sorted(range(len(self._edits)), key=lambda index: (*self._edits[index][:2], index), reverse=True)
        for row, begin, end, new in (self._edits[index] for index in order):
            line = lines[row].encode()
            lines[row] = (line[:begin] + new.encode() + line[end:]).decode()
        text = "".join(lines)
        try:
            ast.parse(text)
        except SyntaxError:
            return None
        return text

    def origin(self, called: ast.expr) -> str:
        """Return the whole name of what is called: `optim.SGD` is torch.optim.SGD after `from torch import optim`."""
        first, dot, rest = ast.unparse(called).partition(".")
        return self._origins.get(first, first) + dot + rest

    def calls(self, pattern: str) -> list[tuple[str, ast.Call]]:
        """Return (variable, call) for each assignment of a call whose whole name matches the pattern."""
        return [
            (ast.unparse(node.targets[0]), node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if re.fullmatch(pattern, self.origin(node.value.func))
        ]

    def made(self) -> list[tuple[str, ast.Call]]:
        """Return (variable, call) for each assignment of a call."""
        return self.calls(".*")

    def begins_its_line(self, statement: ast.stmt) -> bool:
        """Return whether nothing stands before the statement on its line."""
        return not self._lines[statement.lineno - 1].encode()[: statement.col_offset].strip()

    def method_calls(self, owner: str, name: str) -> list[ast.Call]:
        """Return the calls of `owner.name(..)`."""
        wanted = f"{owner}.{name}"
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == wanted]

    def unused(self, *names: str) -> str:
        """Return the first of the names that the script does not use, else the last one."""
        used = {name for node in ast.walk(self.tree) for name in set_by(node)}
        return next((name for name in names if name not in used), names[-1])

    def statement_with(self, inner: ast.expr) -> ast.stmt:
        """Return the smallest statement that holds the expression."""
        holders = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and inner in ast.walk(node)]
        return max(holders, key=lambda node: (node.lineno, -(node.end_lineno or 0)))

    def has_all(self, expression: ast.expr, before: ast.stmt) -> bool:
        """Return whether each name that the expression reads has a value where the statement begins."""
        names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        names -= {name for node in ast.walk(expression) for name in set_by(node)}
        return names <= self.names_before(before) | set(dir(builtins))

    def names_before(self, statement: ast.stmt) -> set[str]:
        """Return the names that the statement's function and the module have set on lines before it."""
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        own = [function for function in functions if statement in ast.walk(function)]
        others = {id(node) for each in functions if each not in own for node in ast.walk(each) if node is not each}
        inside = {id(node) for each in own for node in ast.walk(each)}
        names = set()
        for node in ast.walk(self.tree):
            is_early = not own or id(node) in inside
            if id(node) in others or (is_early and getattr(node, "lineno", 0) >= statement.lineno):
                continue
            names |= set_by(node)
        return names


def has_keyword(call: ast.Call, name: str) -> bool:
    """Return whether the call has that argument, or may have it in a `**` argument."""
    return any(keyword.arg in (name, None) for keyword in call.keywords)


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def is_on_one_line(node: ast.expr) -> bool:
    """Return whether the expression begins and ends on one line."""
    return node.lineno == node.end_lineno


def _last_argument(call: ast.Call) -> ast.expr | ast.keyword | None:
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return max(arguments, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0), default=None)


def _at(row: int, column: int, text: str) -> Edit:
    return row, column, column, text


def set_by(node: ast.AST) -> set[str]:
    """Return the names that this one node of a syntax tree gives a value."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, ast.arg):
        return {node.arg}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.alias):
        return {(node.asname or node.name).split(".")[0]}
    return set()


def _origins(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (name in the script, whole name) for each name that an import gives."""
    if isinstance(node, ast.Import):
        yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
    if isinstance(node, ast.ImportFrom) and node.module:
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
