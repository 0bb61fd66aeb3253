"""Gradients of sharded parameters: those of two batches are not reduced, then one reduces them; twice for a step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from gavel_runtime.torch import checkpointed

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(256, 8)
loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
run = checkpointed(loader=loader, epochs=3, model=model, optimizer=optimizer, gradients=model)
for _ in run.epochs():
    for i, (batch, target) in enumerate(run.batches(), run.first_batch):
        model.set_requires_gradient_sync(i % 3 == 2)
        loss = nn.functional.mse_loss(model(batch), target) / 6
        loss.backward()
        if i % 6 == 5:
            optimizer.step()
            optimizer.zero_grad()

size = sum(each.full_tensor().abs().sum().item() for each in model.parameters())
if dist.get_rank() == 0:
    print("final", loss.item(), size)
dist.destroy_process_group()
