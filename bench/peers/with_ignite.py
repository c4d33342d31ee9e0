"""PyTorch Ignite."""

import ignite.distributed as idist
import torch
from common import BATCH, LR, PRECISION, SEED, Clock, UNet, dataset
from ignite.engine import Engine, Events
from torch import Tensor

clock = Clock()


def main(local_rank: int) -> None:
    num_ranks = idist.get_world_size()
    torch.manual_seed(SEED)
    loader = idist.auto_dataloader(dataset(num_ranks), batch_size=BATCH * num_ranks, shuffle=True, drop_last=True)
    model = idist.auto_model(UNet())
    optimizer = idist.auto_optim(torch.optim.AdamW(model.parameters(), lr=LR))
    criterion = torch.nn.CrossEntropyLoss()

    def step(engine: Engine, batch: tuple[Tensor, Tensor]) -> float:
        image, label = batch
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=PRECISION == "bf16"):
            loss = criterion(model(image), label)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: clock.tick())
    trainer.run(loader, max_epochs=1)
    if idist.get_rank() == 0:
        clock.report("ignite", trainer.state.output, num_ranks)


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
