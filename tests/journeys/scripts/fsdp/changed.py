"""A model whose parameters are sharded over the ranks: each writes its shards into the checkpoint."""

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
run = checkpointed(loader=loader, epochs=3, model=model, optimizer=optimizer)
for _ in run.epochs():
    for batch, target in run.batches():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()

size = sum(each.full_tensor().abs().sum().item() for each in model.parameters())
if dist.get_rank() == 0:
    print("final", loss.item(), size)
dist.destroy_process_group()
