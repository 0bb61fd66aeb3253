"""`gavel init`: the patch that makes a script preemptible, or what to add."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.cli.framework import advice_for, patch
from tests.cli.init_scripts import (
    BEGINNING,
    JAX_LEFT_EARLY,
    LEFT_EARLY,
    NOT_KEPT,
    TRAINED_BY_A_FUNCTION,
    WRITTEN_OTHERWISE,
)
from tests.journeys.journey import SCRIPTS


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


@pytest.mark.parametrize("kind", ("cnn", "trainer", "ddp", "huggingface", "lightning", "jax", "keras"))
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


@pytest.mark.parametrize("name", WRITTEN_OTHERWISE)
def test_a_script_that_is_written_otherwise_gets_its_patch(name: str) -> None:
    text, lines = WRITTEN_OTHERWISE[name]
    changed = advice_for(text).changed
    assert changed is not None
    assert [line for line in changed.splitlines() if line in lines] == lines
    assert len(set(changed.splitlines()) - set(text.splitlines())) <= 6


@pytest.mark.parametrize("name", LEFT_EARLY)
def test_a_loop_that_is_left_early_gets_a_patch_that_keeps_what_decides_it(name: str) -> None:
    text, lines = LEFT_EARLY[name]
    changed = advice_for(BEGINNING + text).changed
    assert changed is not None
    assert [line for line in changed.splitlines() if line in lines] == lines
    assert len(changed.splitlines()) - len((BEGINNING + text).splitlines()) <= 4


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_decides_an_exit_and_cannot_be_kept_is_named(name: str) -> None:
    text, sentence = NOT_KEPT[name]
    advice = advice_for(BEGINNING + text)
    assert advice.changed is None
    assert sentence in advice.hint and "from gavel_runtime.torch import" in advice.hint


def test_a_jax_loop_that_is_left_early_leaves_its_state() -> None:
    changed = advice_for(JAX_LEFT_EARLY).changed
    assert changed is not None
    assert changed.splitlines()[-11:] == [
        "    if step % 10:",
        "        run.state = params,",
        "        continue",
        "    if loss < 0.1:",
        "        run.state = params,",
        "        run.finish()",
        "        break",
        "    print(loss)",
        "    run.state = params,",
        "else:",
        "    print('all')",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfor x in range(3):\n    pass\n",
        "from transformers import Trainer\nTrainer(callbacks=[1]).train()\n",
        "from transformers import Trainer\nt = Trainer(callbacks=own)\nt.train()\n",
        "from transformers import Trainer\nt = Trainer(**settings)\nt.train()\n",
        "from transformers import Trainer\nt = Trainer((model))\nt.train()\n",
        "import lightning\nt = lightning.Trainer()\nloader = make()\nt.fit(model, loader)\n",
        "import lightning\nclass Net(lightning.LightningModule):\n    pass\n",
        "import keras\nbuild().fit(x, epochs=3)\n",
        "import keras\nmodel = build()\nmodel.fit(x)\n",
        "import keras\nmodel = build()\nmodel.fit(x, epochs=9, initial_epoch=3)\n",
        "import jax\np = 0\nfor step in range(9):\n    p = f(p, next(batches))\n",
        "import jax\np = 0\nfor step in range(9):\n    for batch in loader:\n        p = f(p, batch)\n",
        "import jax\nfor step in range(9):\n    p = f(step)\n",
        "import torch\nfrom accelerate import Accelerator\na = Accelerator()\nl = loader()\nfor e in range(3):\n"
        "    for i, x in enumerate(l):\n        if i % 4 == 3:\n            o.step()\n            o.zero_grad()\n",
        "import torch\nfrom accelerate import Accelerator\na = Accelerator()\nl = loader()\nfor e in range(3):\n"
        "    for x in l:\n        with a.accumulate(*models):\n            o.step()\n",
        TRAINED_BY_A_FUNCTION.replace("train(m, l)", "train(*all)"),
        TRAINED_BY_A_FUNCTION.replace("train(m, l)", "train(m, l)\n        train(m, l)"),
        TRAINED_BY_A_FUNCTION.replace("train(m, l)", "other.train(m, l)"),
        TRAINED_BY_A_FUNCTION.replace("(model, loader):", "(model, loader):\n    loader = shuffled(loader)").replace(
            "in loader", "in own"
        ),
        TRAINED_BY_A_FUNCTION.replace("(model, loader):", "(model):\n    loader = make()").replace("(m, l)", "(m)"),
        TRAINED_BY_A_FUNCTION.replace("in loader", "in loader.batches"),
        "import torch\ndef main():\n    model = net()\n    opt = torch.optim.SGD(model.parameters())\n"
        "def train(model, loader):\n    for e in range(3):\n        for x in loader:\n            opt.step()\n",
        "print(1)\n",
        "",
    ],
)
def test_a_script_of_another_shape_gets_a_hint_and_no_patch(text: str) -> None:
    advice = advice_for(text)
    assert advice.changed is None
    assert "from gavel_runtime" in advice.hint


def test_the_script_that_the_refused_ones_are_made_of_gets_its_patch() -> None:
    changed = advice_for(TRAINED_BY_A_FUNCTION).changed
    assert changed is not None and "        train(run, m, l)" in changed.splitlines()


def test_a_script_that_is_named_by_its_whole_path_gets_a_patch_for_this_folder(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINED_BY_A_FUNCTION)
    command = [sys.executable, "-m", "gavel.cli", "init", str(script)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines()[:2] == ["--- a/train.py", "+++ b/train.py"]


def test_what_is_no_script_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("for\n")
    assert (run_init(broken).returncode, "line 1" in run_init(broken).stderr) == (2, True)
    missing, packed = tmp_path / "missing.py", tmp_path / "packed.py"
    packed.write_bytes(b"\xff\x00")
    assert run_init(missing).stderr == f"gavel: {missing.name}: No such file or directory\n"
    assert run_init(tmp_path).stderr == f"gavel: {tmp_path.name}: Is a directory\n"
    assert run_init(packed).stderr == f"gavel: {packed.name}: it is no text in UTF-8\n"


def test_a_patch_of_nothing_is_empty() -> None:
    assert patch("a.py", "x\n", "x\n") == ""


def test_a_patch_of_a_text_without_a_last_line_end_can_be_applied(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\ny")
    text = patch("a.py", "x\ny", "z\ny")
    subprocess.run(["git", "apply"], cwd=tmp_path, input=text, text=True, timeout=60, check=True)
    assert (tmp_path / "a.py").read_text() == "z\ny"
