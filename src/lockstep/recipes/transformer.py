"""A causal transformer: embeddings, pre-norm blocks of attention and MLP, and a head over the vocabulary."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INIT_STD = 0.02


class Block(nn.Module):
    """Attention to oneself and what came before, then an MLP, each added to its input: (N, T, width) -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, width) -> (N, T, width); place t sees places 0 .. t."""
        # (N, T, 3 * width) -> three of (N, heads, T, width / heads)
        shape = (*x.shape[:2], 3, self.heads, -1)
        q, k, v = self.queries_keys_values(self.attention_norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attended(seen.transpose(1, 2).flatten(2))
        added: Tensor = self.narrow(F.gelu(self.widen(self.mlp_norm(x))))
        return x + added


class Transformer(nn.Module):
    """A language model: (N, T) token ids -> (N, T, vocabulary) logits of the token after each.

    It has no dropout, and a token sees nothing that comes after it: padding at the end of a row changes no logit before
    it.

    Args:
        vocabulary: number of tokens.
        width: size of a token's vector, a multiple of `heads`.
        layers: number of blocks, kept in the list `blocks`.
        heads: parts of a vector that attend by themselves.
        context: largest T.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        # Not the matrix of `tokens` again: a tied parameter belongs to two places, and cannot be sharded by block.
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(_initialise)
        for name, param in self.named_parameters():
            # 2 * layers sums run down the residual stream; smaller ends of the branches keep its size at the start.
            if name.endswith(("attended.weight", "narrow.weight")):
                nn.init.normal_(param, std=INIT_STD / math.sqrt(2 * layers))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the token after each: (N, T) -> (N, T, vocabulary)."""
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
