"""BatchNorm over the samples of all ranks, on CPU too, where torch's SyncBatchNorm refuses to run."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm


def synchronise(model: nn.Module, device: torch.device) -> nn.Module:
    """Let every BatchNorm of the model see the samples of all ranks; parameters, buffers and names stay."""
    if device.type == "cuda":
        return cast(nn.Module, nn.SyncBatchNorm.convert_sync_batchnorm(model))
    for module in list(model.modules()):
        # Not named_children(), which leaves out the second name of a shared layer.
        for name, child in module._modules.items():
            if isinstance(child, _BatchNorm):
                setattr(module, name, SyncBatchNorm.like(child))
    return SyncBatchNorm.like(model) if isinstance(model, _BatchNorm) else model


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose training statistics are those of the whole micro-batch over all ranks."""

    @classmethod
    def like(cls, norm: _BatchNorm) -> "SyncBatchNorm":
        """The same layer, synchronised: it holds the very parameters and buffers of `norm`."""
        new = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        new._parameters, new._buffers = norm._parameters, norm._buffers
        new.training = norm.training
        return new

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (N, C, ...) per channel."""
        return normalise(self, input)


def normalise(norm: _BatchNorm, input: Tensor) -> Tensor:
    """What a synchronised `norm` makes of this rank's (N, C, ...): with the statistics of all ranks in training."""
    # In evaluation never a collective: the ranks have different numbers of batches.
    if not norm.training or not dist.is_initialized() or dist.get_world_size() == 1:
        return _BatchNorm.forward(norm, input)
    norm._check_input_dim(input)
    output, mean, var, count = cast(
        tuple[Tensor, Tensor, Tensor, Tensor],
        _Normalise.apply(input, norm.weight, norm.bias, norm.eps),  # type: ignore[no-untyped-call]
    )
    if norm.track_running_stats:
        _update(norm, mean, var, count)
    return output


@torch.no_grad()
def _update(norm: _BatchNorm, mean: Tensor, var: Tensor, count: Tensor) -> None:
    assert norm.num_batches_tracked is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.num_batches_tracked.add_(1)
    factor = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    unbiased = var * (count / (count - 1).clamp(min=1))
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), factor)
    norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), factor)


class _Normalise(torch.autograd.Function):
    """(input, weight, bias, eps) -> (output, mean, var, count); the latter three over all ranks, no gradient."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
        dims = [d for d in range(input.dim()) if d != 1]
        x = input.float() if input.dtype in (torch.bfloat16, torch.float16) else input
        count = x.new_tensor([x.numel() // x.shape[1]])
        # A share may be empty where a layer sees only some of the samples.
        var, mean = torch.var_mean(x, dims, correction=0) if x.numel() else x.new_zeros(2, x.shape[1]).unbind()
        # ranks: (num_ranks, 2 C + 1), each row mean, var, count of one rank
        mine = torch.cat([mean, var, count])
        ranks = x.new_empty(dist.get_world_size(), mine.numel())
        dist.all_gather(list(ranks.unbind()), mine)
        means, variances, counts = ranks.split([mean.numel(), mean.numel(), 1], dim=1)
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        var = ((variances + (means - mean) ** 2) * counts).sum(0) / total
        scale = torch.rsqrt(var + eps)
        shape = [1, -1] + [1] * (input.dim() - 2)
        normal = (x - mean.view(shape)) * scale.view(shape)
        output = normal if weight is None else normal * weight.view(shape)
        if bias is not None:
            output = output + bias.view(shape)
        ctx.save_for_backward(normal, weight, scale, total)
        ctx.mark_non_differentiable(mean, var, total)
        return output.to(input.dtype), mean, var, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        normal, weight, scale, total = ctx.saved_tensors
        dims = [d for d in range(normal.dim()) if d != 1]
        shape = [1, -1] + [1] * (normal.dim() - 2)
        dy = grad.to(normal.dtype)
        sums = torch.stack([dy.sum(dims), (dy * normal).sum(dims)])
        grad_bias, grad_weight = sums.clone()
        dist.all_reduce(sums)
        mean_dy, mean_dy_normal = sums / total
        inner = dy - mean_dy.view(shape) - normal * mean_dy_normal.view(shape)
        factor = scale if weight is None else scale * weight
        grad_input = (inner * factor.view(shape)).to(grad.dtype)
        _, wants_weight, wants_bias, _ = ctx.needs_input_grad
        return grad_input, grad_weight if wants_weight else None, grad_bias if wants_bias else None, None
