"""GPT-2 without biases, and its optimizers with their learning rate."""

import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.training import mode_of
from gpubench.training.sequences import blueprint_of, load_text, train_on_text

SPREAD = 0.02
"""Standard deviation of the first weights."""
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1
"""Weight decay of matrices and embeddings."""
WARMUP = 0.02
"""Share of the steps in which the learning rate rises."""


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
            if weight.ndim == 2:  # `output` and `shrink` are number 3 of their Sequential
                spread = SPREAD / (2 * layers) ** 0.5 if name.endswith("3.weight") else SPREAD
                nn.init.normal_(weight, std=spread)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats per token, of int64 tokens (N, T); `targets` (N, T): the tokens that follow."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return cross_entropy(self.logits(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def network_of(trial: Trial) -> Gpt:
    """Return the trial's network with random weights; raises UserError if the heads do not divide the width."""
    params = trial.params
    if params.width % params.heads:
        raise UserError(f"--set width={params.width}: not a multiple of heads={params.heads}")
    return Gpt(params.layers, params.heads, params.width, params.vocabulary, params.context)


def rate_at(step: int, steps: int, warmup_steps: int | None = None) -> float:
    """Return the share of the highest learning rate: a linear rise (None: WARMUP), then half a cosine from 1 to 0.1."""
    warmup_steps = int(WARMUP * steps) if warmup_steps is None else warmup_steps
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    progress = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))


def optimizers_of(trial: Trial, network: Gpt) -> list[torch.optim.Optimizer]:
    """Return AdamW; if the trial asks for Muon, Muon and AdamW. Raises UserError if this torch has no Muon."""
    params, weights = trial.params, list(network.parameters())
    matrices = [weight for weight in weights if weight.ndim > 1]
    optimizers: list[torch.optim.Optimizer] = []
    if params.optimizer == "muon":
        if not hasattr(torch.optim, "Muon"):
            raise UserError("--set optimizer=muon: needs torch 2.9 or later")
        hidden = [weight for weight in network.layers.parameters() if weight.ndim > 1]
        optimizers.append(torch.optim.Muon(hidden, lr=params.muon_lr, weight_decay=WEIGHT_DECAY))
        matrices = [*network.tokens.parameters(), *network.positions.parameters()]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0},
    ]
    eps = mode_of(trial.case.precision, trial.case.device).adam_eps
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    return [*optimizers, torch.optim.AdamW(groups, lr=params.lr, betas=BETAS, eps=eps, fused=True)]


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, its optimizers, and the learning rate of AdamW."""
    network = network_of(trial)
    return blueprint_of(trial, network, lambda: optimizers_of(trial, network), rate_at)


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the training; return the validation loss in nats per token."""
    texts = load_text(trial)
    torch.manual_seed(trial.seed)
    network = network_of(trial).to(trial.case.device)
    mode_of(trial.case.precision, trial.case.device).prepare(network)
    return train_on_text(trial, clock, texts, network, optimizers_of(trial, network), rate_at)
