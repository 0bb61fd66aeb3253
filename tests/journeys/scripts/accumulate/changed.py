"""A loop with Accelerate that sums the gradients of five batches."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gavel_runtime.torch import checkpointed

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=5)
x = torch.randn(512, 8)
loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
run = checkpointed(loader=loader, epochs=3, accelerator=accelerator, gradients=model)
for _ in run.epochs():
    for batch, target in run.batches():
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(batch), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

print("final", loss.item(), sum(each.abs().sum().item() for each in model.parameters()))
