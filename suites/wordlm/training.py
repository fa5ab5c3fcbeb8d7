"""The text in columns, the language models, steps of torch or of NVIDIA Apex, validation, and the loop."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpubench import Blueprint, Clock, Trial, UserError
from gpubench.data.datasets import load_corpus
from gpubench.training import Mode, Notes, Stepper, Tally, dtypes_of, mode_of

from . import TEST_TOKENS, TRAIN_TOKENS, VALID_TOKENS, VOCABULARY

Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens (rows, columns), and the tokens that follow them, flat."""
State = tuple[torch.Tensor, ...] | torch.Tensor | None
"""The hidden state that is passed from batch to batch."""
SLOW_DOWN = 4
"""The learning rate is divided by this when validation does not improve."""


class Slices:
    """Batches of at most `bptt` rows of the text's columns in device memory: views, so that nothing is copied."""

    def __init__(self, columns: torch.Tensor, bptt: int) -> None:
        self.columns, self.bptt = columns, bptt
        self.tokens = (len(columns) - 1) * columns.shape[1]

    def __len__(self) -> int:
        return -(-(len(self.columns) - 1) // self.bptt)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.columns) - 1, self.bptt):
            end = min(start + self.bptt, len(self.columns) - 1)
            yield self.columns[start:end], self.columns[start + 1 : end + 1].view(-1)


def tokens_of(batch: Batch) -> int:
    """Return the number of tokens that a batch predicts."""
    return len(batch[1])


def in_columns(part: torch.Tensor, width: int) -> torch.Tensor:
    """Return tokens (N,) as (N // width, width): a column is a part of the text; an incomplete row is left out."""
    rows = len(part) // width
    return part[: rows * width].view(width, rows).t().contiguous()


def synthetic_text(seed: int) -> list[torch.Tensor]:
    """Return as many tokens as WikiText-2 has, drawn by Zipf's law: the n-th word has a weight of 1/n."""
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, VOCABULARY + 1)
    counts = (TRAIN_TOKENS, VALID_TOKENS, TEST_TOKENS)
    return [torch.multinomial(weights, count, replacement=True, generator=generator) for count in counts]


def padded(words: int, multiple: int) -> int:
    """Return the size of a vocabulary that is padded to a multiple."""
    return -(-words // multiple) * multiple


def load_text(trial: Trial, device: torch.device) -> tuple[Slices, Slices, Slices, int]:
    """Return training, validation and test text in columns on the device, and the size of the model's vocabulary."""
    params = trial.params
    if trial.synthetic:
        parts, words = synthetic_text(trial.seed), VOCABULARY
    else:
        corpus = load_corpus("wikitext-2", Path(trial.data_dir))
        parts, words = list(map(torch.from_numpy, (corpus.train, corpus.valid, corpus.test))), corpus.vocabulary
    train_part, valid_part, test_part = parts

    def columns(part: torch.Tensor, tokens: int, width: int, name: str, option: str) -> Slices:
        part = part[: tokens or len(part)]
        if len(part) < 2 * width:
            raise UserError(
                f"the {name} text has {len(part)} tokens, too few for {width} columns of 2; give a smaller {option}"
            )
        return Slices(in_columns(part, width).to(device).long(), params.bptt)

    return (
        columns(train_part, params.train_tokens, trial.batch_size, "training", "--batch"),
        columns(valid_part, params.valid_tokens, params.valid_batch, "validation", "--set valid_batch"),
        columns(test_part, params.valid_tokens, params.valid_batch, "test", "--set valid_batch"),
        padded(words, params.vocab_multiple),
    )


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
    """Embedding, layers and decoder. Initial weights are those of Apex: uniform in +-0.1, the decoder's bias zero.

    Maps tokens (rows, columns) and a state to scores (rows * columns, vocabulary) and a state. The state is None for
    the first batch (all zeros), and always for a transformer.
    """

    positions: torch.Tensor
    later: torch.Tensor
    """A mask for attention: -inf at the positions that follow, else 0."""

    def __init__(self, kind: str, params: SimpleNamespace, vocabulary: int) -> None:
        super().__init__()
        self.attends = kind == "transformer"
        self.scale = math.sqrt(params.emsize)
        self.embedding = nn.Embedding(vocabulary, params.emsize)
        self.dropout = nn.Dropout(params.dropout)
        self.layers = layers(kind, params)
        self.decoder = nn.Linear(params.emsize if self.attends else params.nhid, vocabulary)
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


def network(trial: Trial, vocabulary: int) -> WordModel:
    """Return the trial's model; raises UserError if its sizes do not match."""
    params, kind = trial.params, trial.case.model
    if kind == "transformer" and params.emsize % params.nhead:
        raise UserError(f"--set emsize={params.emsize}: not a multiple of nhead={params.nhead}")
    if params.tied and kind != "transformer" and params.nhid != params.emsize:
        raise UserError("--set tied=true: needs nhid equal to emsize, because embedding and decoder are one matrix")
    return WordModel(kind, params, vocabulary)


class ApexStepper:
    """A Stepper that uses Apex's FP16_Optimizer for master weights, loss scale (0: dynamic) and step.

    It makes the calls of Apex's example (main_fp16_optimizer.py of 43522e63).
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        clock: Clock,
        *,
        clip_norm: float,
        loss_scale: float,
    ) -> None:
        from apex.fp16_utils import FP16_Optimizer

        scale = {"static_loss_scale": loss_scale} if loss_scale else {"dynamic_loss_scale": True}
        self.model, self.inner, self.clip_norm = model, optimizer, clip_norm
        self.optimizer = FP16_Optimizer(optimizer, verbose=False, **scale)
        self.losses, self.skipped_steps = Tally(), 0
        clock.note(self.notes)

    def backward(self, loss: torch.Tensor) -> None:
        """Scale the loss, back-propagate, and copy the gradients to the master weights."""
        self.losses.add(loss)
        self.optimizer.backward(loss)

    def step(self) -> None:
        """Clip and step unless a gradient overflowed; clear the gradients."""
        self.optimizer.clip_master_grads(self.clip_norm)
        self.optimizer.step()
        self.skipped_steps += bool(self.optimizer.overflow)
        self.optimizer.zero_grad()

    def notes(self) -> Notes:
        """Return the loss scale, skipped steps and non-finite losses, for the row."""
        bad = self.losses.last_is_bad
        return Notes(
            loss_scale=float(self.optimizer.loss_scale),
            skipped_steps=self.skipped_steps,
            nonfinite_losses=self.losses.count,
            diverged=f"the last of {self.losses.total} losses was not finite" if bad else "",
            weights=dtypes_of(self.model, [self.inner]),
        )


def mean_loss(model: torch.nn.Module, mode: Mode, batches: Iterable[Batch]) -> float:
    """Return the mean loss per token, in float32, without dropout; the state is passed from batch to batch."""
    model.eval()
    losses, tokens, state = [], 0, None
    with torch.no_grad():
        for batch, targets in batches:
            with mode.autocast():
                scores, state = model(batch, state)
            losses.append(cross_entropy(scores.float(), targets, reduction="sum"))  # on the device: no waiting
            tokens += len(targets)
    return float(torch.stack(losses).cpu().double().sum()) / tokens


def perplexity(loss: float) -> float:
    """Return exp(loss), or infinity if that is too large for a float."""
    return math.exp(loss) if loss < 700 else math.inf


def detached(state: State) -> State:
    """Return the hidden state without its history: back-propagation ends at the start of the batch."""
    if isinstance(state, tuple):
        return tuple(part.detach() for part in state)
    return None if state is None else state.detach()


def blueprint(trial: Trial) -> Blueprint:
    """Return the model on two columns of WikiText-2, and the learning rate while validation improves."""
    params = trial.params
    return Blueprint(
        network=network(trial, padded(VOCABULARY, params.vocab_multiple)),
        inputs=(torch.zeros(params.bptt, 2, dtype=torch.int64), None),
        samples=2 * params.bptt,
        epochs=params.epochs,
        schedule={"learning rate": lambda epoch: params.lr},
        note=f"The rate is divided by {SLOW_DOWN} after each epoch in which validation does not improve",
        batch_dimension=1,
    )


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Train; return the perplexities of validation and test text at the best epoch; nothing from a sampled run."""
    params = trial.params
    device = torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    train_text, valid_text, test_text, vocabulary = load_text(trial, device)
    model = mode.prepare(network(trial, vocabulary).to(device))
    # On CUDA a GradScaler waits for the device in every step of an optimizer that is not fused.
    optimizer = torch.optim.SGD(model.parameters(), lr=params.lr, fused=device.type == "cuda")
    options = {"clip_norm": params.clip, "loss_scale": params.loss_scale}
    stepper = (
        ApexStepper(model, optimizer, clock, **options)
        if params.engine == "apex"
        else Stepper(mode, model, optimizer, clock, **options)
    )

    def step(batch: Batch, state: State) -> State:
        tokens, targets = batch
        with mode.autocast():
            scores, state = model(tokens, detached(state))
        stepper.backward(cross_entropy(scores.float(), targets))
        stepper.step()
        return state

    best, kept = math.inf, None
    for _ in clock.epochs(params.epochs):
        model.train()
        state = None
        for batch in clock.steps(train_text, phase="train", samples=train_text.tokens, count=tokens_of):
            state = step(batch, state)
        loss = mean_loss(
            model, mode, clock.steps(valid_text, phase="valid", samples=valid_text.tokens, count=tokens_of)
        )
        if loss < best:
            # A copy in the host's memory leaves the device's memory to the batch.
            best, kept = loss, {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}
        else:
            for group in optimizer.param_groups:
                group["lr"] /= SLOW_DOWN
    model.train()
    state = None
    for batch in clock.resident():
        state = step(batch, state)
    if not clock.complete:
        return {}
    if kept:
        model.load_state_dict(kept)
    return {"perplexity": perplexity(best), "test_perplexity": perplexity(mean_loss(model, mode, test_text))}
