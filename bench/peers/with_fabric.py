"""Lightning Fabric."""

import os

import torch
from common import BATCH, LR, PRECISION, SEED, Clock, UNet, dataset
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

clock = Clock()
num_ranks = int(os.environ["WORLD_SIZE"])
precision = "bf16-mixed" if PRECISION == "bf16" else "32-true"
fabric = Fabric(accelerator="cpu", devices=num_ranks, strategy="ddp", precision=precision)
fabric.launch()
torch.manual_seed(SEED)
model = UNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(dataset(num_ranks), batch_size=BATCH, shuffle=True, drop_last=True))
criterion = torch.nn.CrossEntropyLoss()
value = 0.0
for image, label in loader:
    optimizer.zero_grad()
    loss = criterion(model(image), label)
    fabric.backward(loss)
    optimizer.step()
    value = loss.item()
    clock.tick()
if fabric.is_global_zero:
    clock.report("fabric", value, num_ranks)
