"""Where a training loop is left or cut short: by `break`, `return` and `continue`, with the conditions around them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Loop = ast.For | ast.While
Exit = ast.Break | ast.Continue | ast.Return


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement, and the conditions of the `if`s around it up to where the walk began."""

    statement: ast.stmt
    conditions: tuple[ast.expr, ...]
    is_nested: bool  # in a loop within the one where the walk began


def placed(body: list[ast.stmt], conditions: tuple[ast.expr, ...] = (), *, is_nested: bool = False) -> Iterator[Placed]:
    """Yield every statement below the body, those of functions and classes in it excepted."""
    for statement in body:
        yield Placed(statement, conditions, is_nested)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        inner = (*conditions, statement.test) if isinstance(statement, ast.If) else conditions
        is_loop = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
        for name, parts in ast.iter_fields(statement):
            if not isinstance(parts, list):
                continue
            nested = is_nested or (is_loop and name == "body")
            for part in parts:
                if isinstance(part, ast.stmt):
                    yield from placed([part], inner, is_nested=nested)
                elif isinstance(part, ast.ExceptHandler | ast.match_case):
                    yield from placed(part.body, inner, is_nested=nested)


def exits(loop: Loop, *, continues: bool = False) -> list[Placed]:
    """Return what leaves the loop: its own `break`s, each `return`, and with `continues` what cuts its body short."""
    own = (ast.Break, ast.Continue) if continues else (ast.Break,)
    return [
        each
        for each in placed(loop.body)
        if isinstance(each.statement, ast.Return) or (isinstance(each.statement, own) and not each.is_nested)
    ]


def key_of(node: ast.expr) -> str | None:
    """Return a variable's name, or `self.name`; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return ast.unparse(node) if is_own else None


def read_in(*expressions: ast.AST | None) -> list[str]:
    """Return the variables that the expressions read, each once, in order."""
    nodes = [node for each in expressions if each is not None for node in ast.walk(each)]
    keys = [key_of(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
    return list(dict.fromkeys(key for key in keys if key is not None and key != "self"))


def assigned_by(statement: ast.stmt) -> list[str]:
    """Return the variables that the statement itself assigns."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For):
        targets = [statement.target]
    parts = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple | ast.List) else [each])]
    return [key for part in parts if (key := key_of(part)) is not None]


def mutated_by(statement: ast.stmt) -> list[str]:
    """Return the variables whose value the statement changes in place: by a method of a list or set, or an item."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        owner = called.value if isinstance(called, ast.Attribute) and called.attr in _CHANGES else None
    else:
        items = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        owner = items[0].value if isinstance(items[0], ast.Subscript) else None
    key = None if owner is None else key_of(owner)
    return [] if key is None else [key]


_CHANGES = ("append", "appendleft", "add", "extend", "update", "insert", "pop", "popleft", "clear", "remove")
