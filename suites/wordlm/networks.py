"""The language models: an embedding, an RNN or a transformer, a decoder."""

import math
from types import SimpleNamespace

import torch
from torch import nn

from gpubench import Trial, UserError

State = tuple[torch.Tensor, ...] | torch.Tensor | None
"""The hidden state that is passed from batch to batch."""


def positions(rows: int, width: int) -> torch.Tensor:
    """Return the sines and cosines of Vaswani et al. 2017, (rows, 1, width)."""
    angles = torch.arange(rows).unsqueeze(1) * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    waves = torch.zeros(rows, 1, width)
    waves[:, 0, 0::2] = angles.sin()
    waves[:, 0, 1::2] = angles.cos()[:, : width // 2]
    return waves


def layers(kind: str, params: SimpleNamespace) -> nn.Module:
    """Return the layers between embedding and decoder."""
    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(params.emsize, params.nhead, params.nhid, params.dropout)
        return nn.TransformerEncoder(layer, params.nlayers, nn.LayerNorm(params.emsize), enable_nested_tensor=False)
    between = params.dropout if params.nlayers > 1 else 0.0  # torch drops out between layers only
    if kind.startswith("rnn"):
        return nn.RNN(
            params.emsize, params.nhid, params.nlayers, nonlinearity=kind.removeprefix("rnn_"), dropout=between
        )
    recurrent = nn.LSTM if kind == "lstm" else nn.GRU
    return recurrent(params.emsize, params.nhid, params.nlayers, dropout=between)


class WordModel(nn.Module):
    """Embedding, layers and decoder, with the example's initial weights: uniform in +-0.1, the decoder's bias zero.

    Maps tokens (rows, columns) and a state to scores (rows * columns, vocabulary) and a state. The state is None for
    the first batch (all zeros), and always for a transformer.
    """

    positions: torch.Tensor
    later: torch.Tensor
    """A mask for attention: -inf at the positions that follow, else 0."""

    def __init__(self, kind: str, params: SimpleNamespace, vocabulary: int) -> None:
        super().__init__()
        self.attends, width = kind == "transformer", width_of(kind, params)
        self.scale = math.sqrt(params.emsize)
        self.embedding = nn.Embedding(vocabulary, params.emsize)
        self.dropout = nn.Dropout(params.dropout)
        self.layers = layers(kind, params)
        self.decoder = nn.Linear(width, vocabulary)
        if params.tied:
            self.decoder.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        if self.attends:
            self.register_buffer("positions", positions(params.bptt, params.emsize))
            self.register_buffer("later", nn.Transformer.generate_square_subsequent_mask(params.bptt))

    def forward(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        x = self.embedding(tokens)
        if self.attends:
            x = x * self.scale + self.positions[: len(x)]
            x = self.layers(self.dropout(x), mask=self.later[: len(x), : len(x)], is_causal=True)
        else:
            x, state = self.layers(self.dropout(x), state)
            x = self.dropout(x)
        return self.decoder(x).flatten(0, 1), state


def width_of(kind: str, params: SimpleNamespace) -> int:
    """Return the number of features per token that the decoder takes."""
    return int(params.emsize if kind == "transformer" else params.nhid)


def network(trial: Trial, vocabulary: int) -> WordModel:
    """Return the trial's model; raises UserError if its sizes do not match."""
    params, kind = trial.params, trial.case.model
    if params.tied and width_of(kind, params) != params.emsize:
        raise UserError("--set tied=true: needs nhid equal to emsize, because embedding and decoder are one matrix")
    return WordModel(kind, params, vocabulary)
