"""The job as a Lockstep recipe: what a user would write. Nothing in it knows the number of ranks."""

from collections.abc import Mapping

from common import Scenes, UNet, last
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lockstep.runtime.loss import Term, Terms
from lockstep.runtime.recipe import Recipe

Batch = tuple[Tensor, Tensor]


class Peer(Recipe):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def model(self) -> nn.Module:
        return UNet()

    def train_data(self) -> Scenes:
        return Scenes(self.samples)

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        image, label = batch
        loss = cross_entropy(model(image), label, reduction="sum")
        last["loss"] = loss.detach() / label.numel()
        return {"pixels": Term(loss, label.numel())}

    def counts(self, batch: Batch) -> Mapping[str, int]:
        return {"pixels": batch[1].numel()}
