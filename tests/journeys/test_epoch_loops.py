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
    "numbered from one": "    for number, (batch, target) in enumerate(run.batches(), 1 + run.first_batch):",
    "numbered by name": "    for i, (batch, target) in enumerate(run.batches(), start=1 + run.first_batch):",
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


FUNCTIONS = """import argparse
import torch
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"epoch {epoch} [{batch_idx}/{len(train_loader)}] {loss.item():.6f}")


def test(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(torch.nn.functional.mse_loss(model(x), y).item() for x, y in loader)


def main():
    args = argparse.Namespace(epochs=3, lr=0.5)
    torch.manual_seed(1)
    x = torch.randn(512, 8)
    train_loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, "cpu", train_loader, optimizer, epoch)
        loss = test(model, train_loader)
        scheduler.step()
    print("final", loss)


if __name__ == "__main__":
    main()
"""
SUMMED = """import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 8)
loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(3):
    for i, (batch, target) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(batch), target) / 7
        loss.backward()
        if (i + 1) % 7 == 0:
            optimizer.step()
            optimizer.zero_grad()
print("final", loss.item(), sum(each.abs().sum().item() for each in model.parameters()))
"""

EARLY = """import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 8)
y = x.sum(dim=1, keepdim=True)
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
best, waited, steps = float("inf"), 0, 0
for epoch in range(50):
    for i, (batch, target) in enumerate(loader):
        if i == 40:
            break
        if i % 9 == 4:
            continue
        loss = torch.nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    with torch.no_grad():
        value = torch.nn.functional.mse_loss(model(x), y).item()
    if value < best - 0.01:
        best, waited = value, 0
    else:
        waited += 1
        if waited == 2:
            break
else:
    raise RuntimeError("it should have stopped early")
print("final", epoch, steps, best, model.weight.abs().sum().item())
"""
EARLY_FUNCTION = """import torch
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, optimizer):
    for batch, target in loader:
        loss = torch.nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 1e-2:
            return loss.item()
    return loss.item()


def main():
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8, shuffle=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(50):
        value = train(model, loader, optimizer)
        print("final", epoch, value, model.weight.abs().sum().item())
        if value < 1e-5:
            return


main()
"""
EARLY_JAX = """import jax
import jax.numpy as jnp

w = jnp.zeros(8)
step_of = jax.jit(lambda w, key: w - 0.05 * (w - 1 + 0.1 * jax.random.normal(key, (8,))))
for step in range(400):
    w = step_of(w, jax.random.fold_in(jax.random.key(0), step))
    if step % 7 == 3:
        continue
    if jnp.abs(w - 1).max() < 0.05:
        break
print("final", step, float(jnp.abs(w).sum()))
"""

DATA_MODULE = """import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Data(L.LightningDataModule):
    def setup(self, stage):
        self.x = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))

    def train_dataloader(self):
        return DataLoader(TensorDataset(self.x, self.x.sum(1, keepdim=True)), batch_size=8, shuffle=True)


L.seed_everything(0)
model = Regression()
trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(model, datamodule=Data())
print("final", sum(each.abs().sum().item() for each in model.parameters()))
"""


def survives(text: str, folder: Path) -> None:
    """Patch the script, and have `gavel run` stop and resume it."""
    changed = advice_for(text).changed
    assert changed is not None
    most = 8 if "break" in text or "return\n" in text else 6  # each exit has its own line
    assert len(set(changed.splitlines()) - set(text.splitlines())) <= most
    (folder / "train.py").write_text(changed)
    ran = subprocess.run(
        [sys.executable, "-m", "gavel.cli", "run", "--kills", "2", "train.py"],
        cwd=folder,
        env={**os.environ, "VIRTUAL_ENV": str(PYTHON.parent.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert "It survives preemption" in ran.stdout


@WITH_LIBRARIES
@pytest.mark.parametrize("shape", SHAPES)
def test_the_patched_script_survives_preemption(shape: str, tmp_path: Path) -> None:
    survives(written((SCRIPTS / "cnn" / "original.py").read_text(), shape, "numbered from one"), tmp_path)


@WITH_LIBRARIES
@pytest.mark.parametrize(
    "text",
    [FUNCTIONS, SUMMED, DATA_MODULE, EARLY, EARLY_FUNCTION, EARLY_JAX],
    ids=["a function for each epoch", "summed gradients", "a data module", "left early", "return", "JAX left early"],
)
def test_a_script_of_another_make_survives_preemption(text: str, tmp_path: Path) -> None:
    survives(text, tmp_path)
