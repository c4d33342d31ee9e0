"""The part of a tensor that this rank holds: the whole of an ordinary one, a shard of a DTensor."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """The values of a tensor in this rank's memory, sharing them; without autograd history.

    Args:
        tensor: any shape; a DTensor gives its local shard, which may be empty.
    """
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
