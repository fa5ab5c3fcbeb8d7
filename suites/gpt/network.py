"""GPT-2 without biases: embeddings, layers of causal attention and a two-layer perceptron, and the loss."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

SPREAD = 0.02
"""Standard deviation of the first weights."""


class Layer(nn.Module):
    """Causal attention and a perceptron, each after a LayerNorm and added to its input: (N, T, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_before_attention = nn.LayerNorm(width, bias=False)
        self.attention_inputs = nn.Linear(width, 3 * width, bias=False)
        self.attention_output = nn.Linear(width, width, bias=False)
        self.norm_before_perceptron = nn.LayerNorm(width, bias=False)
        self.expand = nn.Linear(width, 4 * width, bias=False)
        self.perceptron_output = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.attention_inputs(self.norm_before_attention(x)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_output(attended.transpose(1, 2).flatten(2))
        expanded = gelu(self.expand(self.norm_before_perceptron(x)))
        outputs: torch.Tensor = x + self.perceptron_output(expanded)
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
            if weight.ndim == 2:
                spread = SPREAD / (2 * layers) ** 0.5 if name.endswith("_output.weight") else SPREAD
                nn.init.normal_(weight, std=spread)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats per token, of int64 (N, T) and the tokens that follow, (N, T)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return cross_entropy(self.logits(self.norm(x)).flatten(0, 1).float(), targets.flatten())
