"""Every command that a text names exists."""

import re
from pathlib import Path

import pytest

from tests.client.test_complete import COMMANDS, GROUPS

ROOT = Path(__file__).parents[2]
KINDS = {".md", ".py", ".js", ".html", ".yaml", ".yml", ".service"}
PLACES = ("README.md", "ARCHITECTURE.md", "docs", "gavel", "api", "workloads", "examples", "deploy")
FILES = [
    path
    for place in PLACES
    for path in sorted([ROOT / place] if place.endswith(".md") else (ROOT / place).rglob("*"))
    if path.suffix in KINDS and "vendor" not in path.parts
]
SENTENCES = {"is", "could", "here", "itself"}  # words that follow the name in a message
# `gavel job show`, "gavel job cancel", a line of a shell, <code>gavel ..; not the word in a sentence
NAMED = re.compile(r"(?:[`\"'>(|$]|^ {0,4}|\$ |=\S+ )gavel (?!-)([a-z][-a-z]*)(?: ([a-z][-a-z|]*))?", re.MULTILINE)


def named(text: str) -> set[str]:
    """Return the commands that a text names, a group with its verb; `cordon|drain` are two."""
    names = set()
    for match in NAMED.finditer(text):
        word, verbs = match.groups()
        if word in SENTENCES:
            continue
        names |= {f"{word} {verb}" for verb in verbs.split("|")} if word in GROUPS and verbs else {word}
    return names


@pytest.mark.parametrize("path", [each for each in FILES if "gavel " in each.read_text()], ids=lambda p: p.name)
def test_every_command_that_a_text_names_exists(path: Path) -> None:
    assert named(path.read_text()) - set(COMMANDS) == set()


def test_a_command_that_is_not_there_is_found() -> None:
    assert named("`gavel jobs`, then\n    gavel tier drop\n`gavel node cordon|drain X`") == {
        "jobs",
        "tier drop",
        "node cordon",
        "node drain",
    }
