"""Lightning Trainer, with the progress bar, logger and checkpoints switched off."""

import logging
import os
from typing import Any

import lightning
import torch
from common import BATCH, LR, PRECISION, SEED, Clock, UNet, dataset
from torch import Tensor
from torch.utils.data import DataLoader

clock = Clock()
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Segmentation(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = UNet()
        self.criterion = torch.nn.CrossEntropyLoss()
        self.value = 0.0

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        image, label = batch
        loss = self.criterion(self.net(image), label)
        self.value = loss.item()
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        clock.tick()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=LR)


num_ranks = int(os.environ["WORLD_SIZE"])
torch.manual_seed(SEED)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=num_ranks,
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    precision="bf16-mixed" if PRECISION == "bf16" else "32-true",
)
module = Segmentation()
trainer.fit(module, DataLoader(dataset(num_ranks), batch_size=BATCH, shuffle=True, drop_last=True))
if trainer.is_global_zero:
    clock.report("lightning", module.value, num_ranks)
