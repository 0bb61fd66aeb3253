"""A training that its library ends early is complete, and ends at the same step when it is preempted before.

With the real libraries: in `make test-full`, where `make frameworks-env` has installed them.
"""

from pathlib import Path

import pytest

from gavel.cli.framework import advice_for
from tests.journeys.journey import WITH_LIBRARIES, Journey

HUGGINGFACE = """import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
from transformers import TrainingArguments, set_seed


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= state.global_step == 21


set_seed(0)
tokens = torch.randint(0, 64, (96, 16), generator=torch.Generator().manual_seed(1))
rows = [{"input_ids": row, "labels": row} for row in tokens]
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir="output",
    num_train_epochs=20,
    per_device_train_batch_size=4,
    learning_rate=3e-3,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=7,
    save_strategy="no",
    metric_for_best_model="eval_loss",
    greater_is_better=False,
    report_to=[],
    disable_tqdm=True,
)
stop = STOP
trainer = Trainer(model=model, args=arguments, train_dataset=rows[:64], eval_dataset=rows[64:], callbacks=[stop])
trainer.train()
print("final", trainer.state.global_step, sum(each.abs().sum().item() for each in model.parameters()))
"""
LIGHTNING = """import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Stop(lightning.Callback):
    def on_train_batch_start(self, trainer, module, batch, index):
        trainer.should_stop |= trainer.global_step == 20


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-2)


lightning.seed_everything(0)
x, y = torch.randn(160, 8), torch.randn(160, 1)
loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=4, shuffle=True)
val = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=32)
model = Regression()
trainer = lightning.Trainer(
    max_epochs=20,
    callbacks=[STOP],
    val_check_interval=8,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, loader, val)
print("final", trainer.global_step, sum(each.abs().sum().item() for each in model.parameters()))
"""
KERAS = """import keras
import numpy as np

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).standard_normal((160, 8)).astype("float32")
y = np.random.default_rng(1).standard_normal((160, 1)).astype("float32")
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.build((None, 8))
model.compile(optimizer=keras.optimizers.Adam(3e-3), loss="mse")


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training |= epoch == 3


callbacks = [
    keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=2, min_lr=1e-5),
    STOP,
]
history = model.fit(
    x[:64], y[:64], validation_data=(x[64:], y[64:]), batch_size=16, epochs=60, shuffle=False, verbose=0,
    callbacks=callbacks,
)
figures = [len(history.epoch), float(model.optimizer.learning_rate), model.evaluate(x, y, verbose=0)]
print("final", figures[1], figures[2], sum(float(np.abs(each).sum()) for each in model.get_weights()))
"""
SCRIPTS = {
    "Hugging Face, early stopping": HUGGINGFACE.replace("STOP", "EarlyStoppingCallback(3)"),
    "Hugging Face, a callback that stops": HUGGINGFACE.replace("STOP", "Stop()"),
    "Lightning, early stopping": LIGHTNING.replace("STOP", 'EarlyStopping("val", patience=3)'),
    "Lightning, a callback that stops": LIGHTNING.replace("STOP", "Stop()"),
    "Keras, early stopping": KERAS.replace(
        "STOP", "keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)"
    ),
    "Keras, a callback that stops": KERAS.replace("STOP", "Stop()"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_init_patches_a_script_that_ends_early(name: str) -> None:
    assert advice_for(SCRIPTS[name]).changed is not None


@pytest.mark.parametrize("name", SCRIPTS)
@WITH_LIBRARIES
@pytest.mark.timeout(900)
def test_a_training_that_ends_early_is_complete_also_after_preemptions(name: str, tmp_path: Path) -> None:
    """1 it ends before its last step, and has said that it is complete, 2 stopped on the way, in the middle between two
    evaluations, and exactly where it ends early, it ends at the same step with the same figures."""
    script = tmp_path / "train.py"
    script.write_text(advice_for(SCRIPTS[name]).changed or "")
    whole, parts = (Journey(str(script), tmp_path / each) for each in ("whole", "parts"))
    assert whole.run() == [0], whole.outputs
    ended = whole.reports[-1]
    assert ended["kind"] == "finished" and ended["step"] < total_steps(whole)
    for stop in sorted({1, ended["step"] // 2, ended["step"] - 1}):
        assert parts.run(stop) == [75], parts.outputs
    if parts.run(ended["step"]) != [0]:
        assert parts.run() == [0], parts.outputs
    assert (parts.reports[-1]["kind"], parts.reports[-1]["step"]) == ("finished", ended["step"])
    assert parts.final() == pytest.approx(whole.final(), rel=1e-6)


def total_steps(journey: Journey) -> int:
    """The number of steps that the script has stated."""
    return max(int(report.get("total_steps", 0)) for report in journey.reports)
