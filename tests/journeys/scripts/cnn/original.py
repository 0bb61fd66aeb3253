"""A convolutional network on made-up pictures, in a plain loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
torch.manual_seed(0)
images = torch.randn(640, 1, 8, 8)
labels = (images.mean(dim=(1, 2, 3)) > 0).long()
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

for epoch in range(EPOCHS):
    for batch, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")

print("final", loss.item(), sum(each.abs().sum().item() for each in model.parameters()))
