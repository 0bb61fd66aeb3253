"""A trainer class of one's own: mixed precision where there is a GPU, gradient clipping, an evaluation each epoch."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from gavel_runtime.torch import checkpointed


class Noisy(Dataset):
    """Points of a curve, with noise that is drawn anew each time."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        x = torch.tensor([index / 512])
        return x, torch.sin(6 * x) + random.gauss(0, 0.1)


class Trainer:
    def __init__(self, model, epochs):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)
        self.epochs = epochs
        self.loader = DataLoader(Noisy(), batch_size=16, shuffle=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.device == "cuda")

    def fit(self):
        run = checkpointed(
            loader=self.loader, epochs=self.epochs, model=self.model, optimizer=self.optimizer, scaler=self.scaler
        )
        for epoch in run.epochs():
            for x, y in run.batches():
                self.step(x.to(self.device), y.to(self.device))
            print(f"epoch {epoch} error {self.evaluate():.4f}")

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @torch.no_grad()
    def evaluate(self):
        x = torch.linspace(0, 1, 100, device=self.device)[:, None]
        return nn.functional.mse_loss(self.model(x), torch.sin(6 * x)).item()


torch.manual_seed(0)
random.seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)), epochs=4)
trainer.fit()
print("final", trainer.evaluate(), sum(each.abs().sum().item() for each in trainer.model.parameters()))
