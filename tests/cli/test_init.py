"""`gavel init`: the patch that makes a script preemptible, or what to add."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.cli.framework import advice_for, patch
from tests.journeys.journey import SCRIPTS

PATCHED = ("cnn", "trainer", "ddp", "huggingface")


def run_init(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gavel.cli", "init", script.name]
    return subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=60, check=False)


def shape(text: str) -> set[str]:
    """Every statement of a script, without the order of keywords and imports."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords.sort(key=lambda keyword: str(keyword.arg))
    return {ast.dump(node) for node in tree.body}


@pytest.mark.parametrize("kind", PATCHED)
def test_the_patched_script_is_the_one_that_the_journeys_run(kind: str) -> None:
    original, changed = ((SCRIPTS / kind / name).read_text() for name in ("original.py", "changed.py"))
    advice = advice_for(original)
    assert advice.changed is not None
    assert shape(advice.changed) == shape(changed)


def test_the_printed_patch_can_be_applied(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    original = (SCRIPTS / "cnn" / "original.py").read_text()
    script.write_text(original)
    ran = run_init(script)
    assert (ran.returncode, ran.stderr) == (0, "train.py uses PyTorch\n")
    subprocess.run(["git", "apply"], cwd=tmp_path, input=ran.stdout, text=True, timeout=60, check=True)
    assert script.read_text() == advice_for(original).changed
    assert "uses gavel_runtime already" in run_init(script).stdout


@pytest.mark.parametrize(("kind", "framework"), [("lightning", "Lightning"), ("jax", "JAX"), ("keras", "Keras")])
def test_it_says_what_to_add_where_it_has_no_patch(kind: str, framework: str) -> None:
    advice = advice_for((SCRIPTS / kind / "original.py").read_text())
    assert (advice.framework, advice.changed) == (framework, None)
    assert "gavel_runtime" in advice.hint


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfor x in range(3):\n    pass\n",
        "from transformers import Trainer\nTrainer(callbacks=[1]).train()\n",
        "import torch\ndef main():\n    model = net()\n    opt = torch.optim.SGD(model.parameters())\n"
        "def train(model, loader):\n    for e in range(3):\n        for x in loader:\n            opt.step()\n",
        "print(1)\n",
        "",
    ],
)
def test_a_script_of_another_shape_gets_a_hint_and_no_patch(text: str) -> None:
    advice = advice_for(text)
    assert advice.changed is None
    assert "gavel_runtime" in advice.hint


def test_what_is_no_script_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("for\n")
    assert (run_init(broken).returncode, "line 1" in run_init(broken).stderr) == (2, True)
    assert "No such file" in run_init(tmp_path / "missing.py").stderr


def test_a_patch_of_nothing_is_empty() -> None:
    assert patch("a.py", "x\n", "x\n") == ""
