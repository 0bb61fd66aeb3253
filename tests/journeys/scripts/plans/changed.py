"""Training of a job with execution plans: layers split over `tensor` ranks, parameters sharded over the copies."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import TensorDataset

from gavel_runtime import job
from gavel_runtime.torch import GlobalBatches, checkpointed

dist.init_process_group("gloo")
tensor = job.plan.get("tensor", 1)
mesh = init_device_mesh("cpu", (job.world_size // tensor, tensor), mesh_dim_names=("data", "tensor"))
copies = mesh["data"].size()
torch.manual_seed(0)
inputs = torch.randn(200, 8, dtype=torch.float64)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)).double()
if tensor > 1:
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["data"])
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
curve = []
loader = GlobalBatches(TensorDataset(inputs, inputs.roll(1, 1)), global_batch=24, at_most=4, model_parallel_size=tensor)
run = checkpointed(loader=loader, epochs=3, model=model, optimizer=optimizer, values=lambda: (curve,))
(curve,) = run.values

for _ in run.epochs():
    for parts in run.batches():
        optimizer.zero_grad()
        total = torch.zeros(1, dtype=torch.float64)
        for part in parts:
            given, wanted = part.batch
            loss = part.weight * nn.functional.mse_loss(model(given), wanted)
            (copies * loss).backward()  # fully_shard takes the mean over the copies
            total += loss.detach()
        optimizer.step()
        dist.all_reduce(total, group=mesh.get_group("data"))
        curve.append(total.item())

if job.is_rank_zero:
    print("final", *curve)
dist.destroy_process_group()
