"""Hugging Face Accelerate."""

import torch
from accelerate import Accelerator
from common import BATCH, LR, PRECISION, SEED, Clock, UNet, dataset
from torch.utils.data import DataLoader

clock = Clock()
accelerator = Accelerator(cpu=True, mixed_precision="bf16" if PRECISION == "bf16" else "no")
torch.manual_seed(SEED)
model = UNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
loader = DataLoader(dataset(accelerator.num_processes), batch_size=BATCH, shuffle=True, drop_last=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
criterion = torch.nn.CrossEntropyLoss()
value = 0.0
for image, label in loader:
    optimizer.zero_grad()
    with accelerator.autocast():
        loss = criterion(model(image), label)
    accelerator.backward(loss)
    optimizer.step()
    value = loss.item()
    clock.tick()
if accelerator.is_main_process:
    clock.report("accelerate", value, accelerator.num_processes)
accelerator.end_training()
