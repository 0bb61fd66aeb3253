"""A small network with Lightning."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gavel_runtime.lightning import GavelCallback


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)]


lightning.seed_everything(0)
x = torch.randn(512, 8)
loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8, shuffle=True)
model = Regression()
gavel = GavelCallback(loader)
trainer = lightning.Trainer(
    max_epochs=3,
    callbacks=[gavel],
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, gavel.loader, ckpt_path=gavel.checkpoint)
print("final", sum(each.abs().sum().item() for each in model.parameters()))
