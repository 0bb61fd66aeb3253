"""Every plain way to write a loop over epochs: `gavel init` patches it, and the patched script survives preemption."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.cli.framework import advice_for
from tests.journeys.journey import PYTHON, SCRIPTS, WITH_LIBRARIES

LOOP, BATCHES = "for epoch in range(EPOCHS):\n", "    for batch, target in loader:\n"
TRAINING = """import torch
EPOCHS = 3
loader, model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(EPOCHS):
    for batch, target in loader:
        train(batch, target)
"""
SHAPES = {
    "from one": ("for epoch in range(1, EPOCHS + 1):\n", "for epoch in run.epochs(1):", "EPOCHS"),
    "from a number": ("FIRST = 4\nfor epoch in range(FIRST, 7):\n", "for epoch in run.epochs(FIRST):", "7 - FIRST"),
    "numbers": ("for epoch in range(2, 5):\n", "for epoch in run.epochs(2):", "3"),
    "a bar": (
        "from tqdm import tqdm\nfor epoch in tqdm(range(1, EPOCHS + 1), disable=True):\n",
        "for epoch in tqdm(run.epochs(1), disable=True):",
        "EPOCHS",
    ),
    "trange": ("from tqdm import trange\nfor epoch in trange(EPOCHS):\n", "for epoch in run.epochs():", "EPOCHS"),
    "numbered": (
        "for index, epoch in enumerate(range(1, EPOCHS + 1)):\n",
        "for index, epoch in enumerate(run.epochs(1), run.epoch):",
        "EPOCHS",
    ),
    "while": ("epoch = 0\nwhile epoch < EPOCHS:\n", "for epoch in run.epochs():", "EPOCHS"),
    "while from one": ("epoch = 1\nwhile epoch <= EPOCHS:\n", "for epoch in run.epochs(1):", "EPOCHS"),
}
INNER = {
    "plain": BATCHES,
    "numbered from one": "    for number, (batch, target) in enumerate(loader, 1):\n",
    "numbered by name": "    for i, (batch, target) in enumerate(loader, start=1):\n",
}
PATCHED = {
    "plain": "    for batch, target in run.batches():",
    "numbered from one": "    for number, (batch, target) in enumerate(run.batches(), 1 + run.step % len(loader)):",
    "numbered by name": "    for i, (batch, target) in enumerate(run.batches(), start=1 + run.step % len(loader)):",
}


def written(original: str, shape: str, inner: str = "plain") -> str:
    """The script with its loops in another shape; a `while` counts at its end."""
    loop = SHAPES[shape][0]
    text = original.replace(BATCHES, INNER[inner])
    if "while" in loop:
        last = '    print(f"epoch {epoch} loss {loss.item():.4f}")\n'
        text = text.replace(last, last + "    epoch += 1\n") if last in text else text + "    epoch += 1\n"
    assert LOOP in text
    return text.replace(LOOP, loop)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inner", INNER)
def test_the_loop_is_patched(shape: str, inner: str) -> None:
    changed = advice_for(written(TRAINING, shape, inner)).changed
    assert changed is not None
    _, line, epochs = SHAPES[shape]
    lines = changed.splitlines()
    assert line in lines and PATCHED[inner] in lines
    assert f"run = checkpointed(loader=loader, epochs={epochs}, model=model, optimizer=optimizer)" in lines


@pytest.mark.parametrize(
    "text",
    [
        TRAINING.replace("range(EPOCHS)", "range(0, EPOCHS, 2)"),
        TRAINING.replace("range(EPOCHS)", "enumerate(range(EPOCHS), 5)"),
        TRAINING.replace("range(EPOCHS)", "reversed(range(EPOCHS))"),
        TRAINING.replace(LOOP, "epoch = 0\nwhile epoch < EPOCHS:\n"),
        TRAINING.replace(LOOP, "epoch = 0\nwhile epoch < EPOCHS:\n    if skip:\n        continue\n")
        + "    epoch += 1\n",
        TRAINING.replace(LOOP, "epoch = 0\nwhile epoch < EPOCHS and loss > 1:\n") + "    epoch += 1\n",
        TRAINING.replace(LOOP, "epoch = 0\nwhile (epoch < EPOCHS):\n") + "    epoch += 1\n",
    ],
)
def test_a_loop_of_another_shape_gets_a_hint(text: str) -> None:
    assert advice_for(text).changed is None


@WITH_LIBRARIES
@pytest.mark.parametrize("shape", SHAPES)
def test_the_patched_script_survives_preemption(shape: str, tmp_path: Path) -> None:
    text = written((SCRIPTS / "cnn" / "original.py").read_text(), shape, "numbered from one")
    changed = advice_for(text).changed
    assert changed is not None
    (tmp_path / "train.py").write_text(changed)
    ran = subprocess.run(
        [sys.executable, "-m", "gavel.cli", "run", "--kills", "2", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "VIRTUAL_ENV": str(PYTHON.parent.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert "It survives preemption" in ran.stdout
