"""Training of an elastic job: dropout, data that is augmented at random, momentum, a schedule of the learning rate."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

from gavel_runtime import job
from gavel_runtime.torch import GlobalBatches, checkpointed, sum_gradients


class Noisy(Dataset):
    """Examples to which noise is added each time that they are read."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(200, 8, generator=generator, dtype=torch.float64)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        row = self.inputs[index]
        return row + 0.1 * torch.randn(8, dtype=torch.float64), row.sum(dim=0, keepdim=True)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
curve = []
loader = GlobalBatches(Noisy(), global_batch=24, at_most=4)
run = checkpointed(
    loader=loader, epochs=5, model=model, optimizer=optimizer, scheduler=scheduler, values=lambda: (curve,)
)
(curve,) = run.values

for _ in run.epochs():
    for parts in run.batches():
        optimizer.zero_grad()
        total = torch.zeros(1, dtype=torch.float64)
        for part in parts:
            inputs, targets = part.batch
            loss = part.weight * nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            total += loss.detach()
        sum_gradients(model)
        optimizer.step()
        scheduler.step()
        dist.all_reduce(total)
        curve.append(total.item())

if job.is_rank_zero:
    print("final", *curve)
dist.destroy_process_group()
