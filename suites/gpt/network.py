"""GPT-2 without biases: embeddings, layers of causal attention and a two-layer perceptron, and the loss."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

SPREAD = 0.02
"""Standard deviation of the first weights."""


class Attention(nn.Module):
    """Causal attention of several heads: queries, keys and values (N, T, 3 x width) to (N, T, width)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in x.chunk(3, dim=2))
        return scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


class Layer(nn.Module):
    """Attention and a perceptron, each after a LayerNorm and added to its input: (N, T, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        inputs, output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        expand, shrink = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.attention = nn.Sequential(nn.LayerNorm(width, bias=False), inputs, Attention(heads), output)
        self.perceptron = nn.Sequential(nn.LayerNorm(width, bias=False), expand, nn.GELU(), shrink)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        outputs: torch.Tensor = x + self.perceptron(x)
        return outputs


class Gpt(nn.Module):
    """GPT-2 with its loss. The embedding of tokens is also the last layer's matrix.

    First weights are normal with a standard deviation of 0.02; the two matrices of a layer that add to its input have
    0.02 / sqrt(2 x layers) (Radford et al., 2019).
    """

    def __init__(self, layers: int, heads: int, width: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.logits = nn.Linear(width, vocabulary, bias=False)
        self.logits.weight = self.tokens.weight
        for name, weight in self.named_parameters():
            if weight.ndim == 2:  # 3: the last of a Sequential
                spread = SPREAD / (2 * layers) ** 0.5 if name.endswith("3.weight") else SPREAD
                nn.init.normal_(weight, std=spread)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats per token, of int64 (N, T) and the tokens that follow, (N, T)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return cross_entropy(self.logits(self.norm(x)).flatten(0, 1).float(), targets.flatten())
