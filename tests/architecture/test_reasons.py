"""Reasons are declared once, with a sentence and a fix; the documentation has them all, and nobody spells one anew."""

import ast
import re
from collections.abc import Iterator

import pytest

from gavel.types import EXPLAINED, Reason
from tests.architecture.test_floors import PRODUCT, ROOT

DECLARED_IN = ROOT / "gavel" / "types" / "reasons.py"
SCRIPTS = sorted((ROOT / "api" / "dashboard" / "static").glob("*.js"))
ORDINARY = {each.value for each in Reason if len(re.findall("[A-Z]", each.value)) == 1}  # also words of English
DISTINCT = re.compile("|".join(rf"\b{each.value}\b" for each in Reason if each.value not in ORDINARY))
COMPARED = re.compile(r"(?:===|!==|\bcase)\s*[\"'](?:" + "|".join(Reason) + r")[\"']")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module, docstrings and the parts of f-strings too; not the list of what it exports."""
    exports = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    exported = {id(each) for node in exports for each in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exported:
            yield node.lineno, node.value


def test_no_reason_is_spelled_outside_its_declaration() -> None:
    elsewhere = [each for each in PRODUCT if each != DECLARED_IN and "answers" not in each.parts]
    literals = ((path, *each) for path in elsewhere for each in texts(ast.parse(path.read_text())))
    assert [each for each in literals if each[2] in ORDINARY or DISTINCT.search(each[2])] == []


def test_no_page_compares_a_reason_with_a_text() -> None:
    scripts = {path: path.read_text() for path in SCRIPTS}
    assert [path for path, script in scripts.items() if DISTINCT.search(script) or COMPARED.search(script)] == []


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_explained_in_whole_sentences(reason: Reason) -> None:
    explained = EXPLAINED[reason]
    assert re.fullmatch(r"[A-Z][^.]+\.", explained.sentence)
    assert re.fullmatch(r"([A-Z`].*\.)?", explained.fix)


def test_the_documentation_has_every_reason_in_its_words() -> None:
    page = (ROOT / "docs" / "explain.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\|$", page, re.MULTILINE)
    assert rows == [(each.value, each.sentence, each.fix()) for each in Reason]


def test_a_reason_of_a_newer_version_keeps_its_text_and_says_where_to_look() -> None:
    unknown = Reason("FromTheFuture")
    assert (unknown, unknown.value, str(unknown)) == ("FromTheFuture",) * 3
    assert unknown == Reason("FromTheFuture") and unknown not in list(Reason)
    assert "newer version" in unknown.sentence and unknown.fix()
    with pytest.raises(ValueError, match="3"):
        Reason(3)
