"""One word for each thing, and the field's word: docs/glossary.md has them; private ones are refused here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("gavel", "api", "workloads", "runtime", "benchmarks", "scripts", "tests")
CODE_OF = {room: sorted((ROOT / room).rglob("*.py")) for room in ROOMS}
CODE = [path for paths in CODE_OF.values() for path in paths]
PROSE = sorted(
    [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "CHANGELOG.md",
    ]
    + [path for folder in ("docs", "deploy", "examples") for path in (ROOT / folder).rglob("*.md")]
    + [path for kind in ("*.html", "*.js") for path in (ROOT / "api" / "dashboard").rglob(kind)]
)

IDENTIFIERS = {
    **dict.fromkeys(
        ("said", "told", "known", "found"), "the thing itself: payload, record, reported, snapshot, matches"
    ),
    **dict.fromkeys(("owed", "promised"), "target_fraction, or lag_rounds"),
    "owed_rounds": "lag_rounds",
    "most_owed": "largest_lag",
    **dict.fromkeys(("Standing", "standing"), "SelectionProblem, selection"),
    "Taking": "apply_observation",
    **dict.fromkeys(("beside", "aside", "side_rates"), "colocated, interference_rates"),
    **dict.fromkeys(("doubts", "Doubt"), "rejected_reports, RejectedReport"),
    "hoped": "optimistic",
    **dict.fromkeys(("astray", "Stray"), "outliers, Outlier"),
    "witnesses": "sources",
    **dict.fromkeys(("statements", "Statement"), "user_claims, UserClaim"),
    **dict.fromkeys(("references", "References"), "reference_profiles, ReferenceProfiles"),
    "wishes": "user_requests",
    "story": "history",
    "news": "events",
    "edition": "cache_version",
    **dict.fromkeys(("tenure", "Tenure"), "state_dir_lock, StateDirLock"),
    "JobRow": "JobResult",
    "RoundView": "PlanInputs",
    "StaleToken": "a generation is stale, a token opens the API",
    "queued_jobs_per_user": "unfinished_jobs_per_user",
    "policy_path": "policy_dir",
    "ray_node_folder": "ray_node_dir",
    "ray_checkpoints": "ray_checkpoint_dir",
}
"""Names that nothing may have, leading underscores aside -> what to use. An exact name: `is_known` is plain English."""
ELSEWHERE = {"RoundView": "api/", "JobRow": "gavel/store/"}  # what the name means there is the field's

MODULES = frozenset(
    [
        "holding",
        "staying",
        "verdicts",
        "again",
        "switching",
        "tenure",
        "answering",
        "words",
        "holdings",
        "distance",
        "levels",
        "family",
        "answer",
        "spreads",
        "seen",
        "newest",
        "recent",
        "rates",
        "wishes",
        "news",
        "doubts",
        "statements",
        "aside",
        "observing_taking",
    ]
)
PHRASES = {
    r"\bowed\b": "target fraction, or lag",
    r"\bwish(es)?\b": "user request",
    r"\bdoubts?\b": "rejected report, or error",
    r"\bwitness(es)?\b": "sources",
    r"\bastray\b": "outlier",
    r"\btenure\b": "lock of the state folder",
    r"\bedition\b": "cache version",
}
"""Private words that no sentence may hold: docstrings, help texts, messages, docs, the dashboard."""


def names(tree: ast.AST) -> Iterator[str]:
    """Every name that the file gives to something."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.rpartition(".")[2]


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of the file of more than one word: docstrings, help texts, messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def is_private(name: str, path: Path) -> bool:
    bare = name.lstrip("_")
    home = ELSEWHERE.get(bare)
    return bare in IDENTIFIERS and not (home and str(path.relative_to(ROOT)).startswith(home))


def phrases(text: str) -> list[str]:
    return [
        f"{match[0]!r}: say {use}" for pattern, use in PHRASES.items() for match in re.finditer(pattern, text, re.I)
    ]


def wrong_words(path: Path) -> list[str]:
    """What to say in place of the private words of a file of code."""
    tree = ast.parse(path.read_text())
    private = sorted({f"{name}: use {IDENTIFIERS[name.lstrip('_')]}" for name in names(tree) if is_private(name, path)})
    return [*private, *(line for text in texts(tree) for line in phrases(text))]


@pytest.mark.parametrize("room", ROOMS)
def test_names_and_sentences_of_the_code_use_the_field_s_words(room: str) -> None:
    wrong = {path: wrong_words(path) for path in CODE_OF[room] if path != Path(__file__)}
    assert {path: words for path, words in wrong.items() if words} == {}


def test_documents_and_pages_use_the_field_s_words() -> None:
    wrong = {path: phrases(path.read_text()) for path in PROSE}
    assert {path: words for path, words in wrong.items() if words} == {}


def test_no_module_has_a_private_name() -> None:
    assert [path for path in CODE if path.stem in MODULES] == []


def test_the_glossary_has_one_line_for_a_word_in_alphabet_free_sections() -> None:
    lines = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| ")]
    words = [line.split("|")[1].strip() for line in lines if "| word |" not in line]
    assert len(words) == len(set(words)) > 40
    assert all(line.rstrip(" |").endswith((".", ")")) for line in lines if "| word |" not in line)
