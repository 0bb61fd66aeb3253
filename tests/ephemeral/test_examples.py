"""The examples of examples/ephemeral do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "ephemeral"
SHOWN = {
    "co_location": """\
generators, submitted before the predictor runs: wait, as app/near-predictor is not there (needs 2)
predictor: ('node-a',)
generators: ('node-a', 'node-a')
""",
    "load_balancing": """\
first fit: {'node-a': 6}
balanced:  {'node-a': 2, 'node-b': 2, 'node-c': 2}
""",
    "composition": """\
pair-0: node-a node-a
pair-1: node-b node-b
pair-2: node-b node-b
pair-3: node-a node-a
""",
    "gang_by_hand": """\
first:  True
second: False
second: True
""",
    "gang": """\
started: ['first-0', 'first-1', 'first-2']
then:    ['second-0', 'second-1', 'second-2']
""",
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_promises(name: str) -> None:
    command = [sys.executable, "-B", str(EXAMPLES / f"{name}.py")]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == SHOWN[name]


def test_every_shown_example_is_there() -> None:
    assert set(SHOWN) <= {path.stem for path in EXAMPLES.glob("*.py")}
