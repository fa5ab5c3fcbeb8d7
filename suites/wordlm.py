"""Language models on WikiText-2, LSTM first: time of a whole run.

After the word language model of NVIDIA Apex's examples (2018 to 2019), which came from pytorch/examples. The article of
2019 trained it for 30 epochs. `preset=article` has its sizes of January 2019 (79ad5a88): 200 units, batch 20, the
vocabulary as it is. So most matrix shapes miss the tensor cores. `preset=tensorcore` has the sizes of ten days later
(43522e63): 1504 units, batch 24, everything a multiple of 8.

The text lies in columns, and each step reads `bptt` rows. The hidden state is carried on without its history. SGD clips
gradients, and its rate is divided by 4 whenever validation does not improve.

Samples are predicted tokens. Timed: all epochs, training and validation. Not timed: imports, building the model,
reading the text. Nor is the test text, which is read once at the end with the weights of the best epoch. The example's
seed is 1111 (`--seed 1111`); ours is gpubench's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench import Param, ParamValue, Suite, UserError
from gpubench.hardware.apex import LAST_WITH_AMP, installed

if TYPE_CHECKING:  # `gpubench list` reads this file without torch
    import torch

    from gpubench import Case, Clock, Trial
    from gpubench.training import Mode, Notes

VOCABULARY = 33_278
TRAIN_TOKENS, VALID_TOKENS, TEST_TOKENS = 2_088_628, 217_646, 245_569
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
ARTICLE_BATCH, TENSORCORE_BATCH = 20, 24


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """One run of the recipe; returns the perplexity of the best epoch in validation, and of the test text."""
    import torch
    from torch.nn.functional import cross_entropy

    from gpubench.training import Stepper, mode_of

    params = trial.params
    device = torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    train_text, valid_text, test_text, vocabulary = load_text(trial, device)
    model = mode.prepare(network(trial, vocabulary).to(device))
    # On CUDA a GradScaler waits for the device in every step of an optimizer that is not fused.
    optimizer = torch.optim.SGD(model.parameters(), lr=params.lr, fused=device.type == "cuda")
    with_apex = params.engine == "apex"
    stepper: Any = (
        ApexStepper(model, optimizer, clock, clip_norm=params.clip, loss_scale=params.loss_scale)
        if with_apex
        else Stepper(mode, model, optimizer, clock, clip_norm=params.clip, loss_scale=params.loss_scale)
    )

    def step(batch: tuple[Any, Any], state: Any) -> Any:
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
            best, kept = loss, to_host(model)
        else:
            for group in optimizer.param_groups:
                group["lr"] /= 4
    model.train()
    state = None
    for batch in clock.resident():
        state = step(batch, state)
    if not clock.complete:
        return {}
    if kept:
        model.load_state_dict(kept)
    return {"perplexity": perplexity(best), "test_perplexity": perplexity(mean_loss(model, mode, test_text))}


def mean_loss(model: torch.nn.Module, mode: Mode, batches: Iterable[tuple[Any, Any]]) -> float:
    """Mean loss per token, in float32, without dropout; the state runs on from batch to batch."""
    import torch
    from torch.nn.functional import cross_entropy

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
    """exp(loss), infinite where a float cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf


def detached(state: Any) -> Any:
    """The hidden state without its history: back-propagation ends where the batch begins."""
    if isinstance(state, tuple):
        return tuple(part.detach() for part in state)
    return None if state is None else state.detach()


def to_host(model: torch.nn.Module) -> dict[str, Any]:
    """A copy of the weights in the host's memory, where it takes nothing from the batch."""
    return {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}


# Models


def network(trial: Trial, vocabulary: int) -> torch.nn.Module:
    """The trial's model; it maps tokens (rows, columns) and a state to scores (rows * columns, vocabulary) and a state.

    The state of the first batch is None, which is all zeros; a transformer has none. Weights begin as in the
    example: embedding and decoder uniform in +-0.1, the decoder's bias zero, the rest as torch begins.
    """
    from torch import nn

    params, kind = trial.params, trial.case.model
    width = params.emsize if kind == "transformer" else params.nhid
    if params.tied and width != params.emsize:
        raise UserError("--set tied=true: needs nhid equal to emsize, for embedding and decoder are one matrix")

    class WordModel(nn.Module):
        """Embedding, the layers in between, decoder."""

        positions: torch.Tensor
        later: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, params.emsize)
            self.dropout = nn.Dropout(params.dropout)
            self.layers = layers(kind, params)
            self.decoder = nn.Linear(width, vocabulary)
            if params.tied:
                self.decoder.weight = self.embedding.weight
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)
            if kind == "transformer":
                self.register_buffer("positions", positions(params.bptt, params.emsize))
                self.register_buffer("later", later(params.bptt))

        def forward(self, tokens: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
            x = self.embedding(tokens)
            if kind == "transformer":
                x = x * math.sqrt(params.emsize) + self.positions[: len(x)]
                x = self.layers(self.dropout(x), mask=self.later[: len(x), : len(x)], is_causal=True)
            else:
                x, state = self.layers(self.dropout(x), state)
                x = self.dropout(x)
            return self.decoder(x).flatten(0, 1), state

    return WordModel()


def layers(kind: str, params: Any) -> Any:
    """What lies between embedding and decoder."""
    from torch import nn

    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(params.emsize, params.nhead, params.nhid, params.dropout)
        return nn.TransformerEncoder(layer, params.nlayers, nn.LayerNorm(params.emsize), enable_nested_tensor=False)
    between = params.dropout if params.nlayers > 1 else 0.0  # torch drops out between layers only
    if kind.startswith("rnn"):
        return nn.RNN(
            params.emsize, params.nhid, params.nlayers, nonlinearity=kind.removeprefix("rnn_"), dropout=between
        )
    recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
    return recurrent(params.emsize, params.nhid, params.nlayers, dropout=between)


def positions(rows: int, width: int) -> torch.Tensor:
    """Sines and cosines of Vaswani et al. 2017, (rows, 1, width)."""
    import torch

    angles = torch.arange(rows).unsqueeze(1) * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    waves = torch.zeros(rows, 1, width)
    waves[:, 0, 0::2] = angles.sin()
    waves[:, 0, 1::2] = angles.cos()[:, : width // 2]
    return waves


def later(rows: int) -> torch.Tensor:
    """(rows, rows), true where a position lies ahead, so that attention must not see it."""
    import torch

    return torch.ones(rows, rows, dtype=torch.bool).triu(1)


# NVIDIA Apex


class ApexStepper:
    """A Stepper that leaves master weights, loss scale and step to Apex's FP16_Optimizer.

    The calls are those of Apex's own example (main_fp16_optimizer.py of 43522e63). `loss_scale` 0 is dynamic.
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

        from gpubench.training import Tally

        scale = {"static_loss_scale": loss_scale} if loss_scale else {"dynamic_loss_scale": True}
        self.model, self.inner, self.clip_norm = model, optimizer, clip_norm
        self.optimizer = FP16_Optimizer(optimizer, verbose=False, **scale)
        self.losses, self.skipped_steps = Tally(), 0
        clock.note(self.notes)

    def backward(self, loss: torch.Tensor) -> None:
        """Scale the loss, back-propagate, and give the master weights their gradients."""
        self.losses.add(loss)
        self.optimizer.backward(loss)

    def step(self) -> None:
        """Clip and step, unless a gradient overflowed, and forget the gradients."""
        self.optimizer.clip_master_grads(self.clip_norm)
        self.optimizer.step()
        self.skipped_steps += bool(self.optimizer.overflow)
        self.optimizer.zero_grad()

    def notes(self) -> Notes:
        """What there is to say when the training is over."""
        from gpubench.training import Notes, dtypes_of

        bad = self.losses.last_is_bad
        return Notes(
            loss_scale=float(self.optimizer.loss_scale),
            skipped_steps=self.skipped_steps,
            nonfinite_losses=self.losses.count,
            diverged=f"the last of {self.losses.total} losses was not finite" if bad else "",
            weights=dtypes_of(self.model, [self.inner]),
        )


# Text


class Slices:
    """Batches from columns of text that stay in device memory: views, so that a batch costs nothing.

    Each is tokens (rows, columns), at most `bptt` rows, and the tokens that follow them, flat.
    """

    def __init__(self, columns: torch.Tensor, bptt: int) -> None:
        self.columns, self.bptt = columns, bptt
        self.tokens = (len(columns) - 1) * columns.shape[1]

    def __len__(self) -> int:
        return -(-(len(self.columns) - 1) // self.bptt)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for start in range(0, len(self.columns) - 1, self.bptt):
            end = min(start + self.bptt, len(self.columns) - 1)
            yield self.columns[start:end], self.columns[start + 1 : end + 1].view(-1)


def tokens_of(batch: tuple[Any, Any]) -> int:
    """Tokens that a batch predicts."""
    return len(batch[1])


def load_text(trial: Trial, device: torch.device) -> tuple[Slices, Slices, Slices, int]:
    """Training, validation and test text in columns on the device, and how many words the model has."""
    params = trial.params
    *parts, words = synthetic_text(trial.seed) if trial.synthetic else real_text(Path(trial.data_dir))
    vocabulary = -(-words // params.vocab_multiple) * params.vocab_multiple
    train_part, valid_part, test_part = parts
    few = params.valid_tokens

    def cut(part: torch.Tensor, tokens: int, width: int, what: str, option: str) -> Slices:
        part = part[: tokens or len(part)]
        if len(part) < 2 * width:
            raise UserError(
                f"the {what} text has {len(part)} tokens, too few for {width} columns of 2; give a smaller {option}"
            )
        return Slices(in_columns(part, width).to(device), params.bptt)

    return (
        cut(train_part, params.train_tokens, trial.batch_size, "training", "--batch"),
        cut(valid_part, few, params.valid_batch, "validation", "--set valid_batch"),
        cut(test_part, few, params.valid_batch, "test", "--set valid_batch"),
        vocabulary,
    )


def in_columns(part: torch.Tensor, width: int) -> torch.Tensor:
    """Tokens (N,) as (N // width, width): each column is a stretch of the text; what fills no row is left out."""
    rows = len(part) // width
    return part[: rows * width].view(width, rows).t().contiguous()


def real_text(root: Path) -> tuple[Any, Any, Any, int]:
    """Tokens, int64 (N,), of the corpus under `root`, and its vocabulary."""
    import torch

    from gpubench.data.datasets import load_corpus

    corpus = load_corpus("wikitext-2", root)
    train_part, valid_part, test_part = (
        torch.from_numpy(part).long() for part in (corpus.train, corpus.valid, corpus.test)
    )
    return train_part, valid_part, test_part, corpus.vocabulary


def synthetic_text(seed: int) -> tuple[Any, Any, Any, int]:
    """As many tokens as WikiText-2 has, drawn by Zipf's law: the n-th word comes with a weight of 1/n."""
    import torch

    dice = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, VOCABULARY + 1)
    train_part, valid_part, test_part = (
        torch.multinomial(weights, tokens, replacement=True, generator=dice)
        for tokens in (TRAIN_TOKENS, VALID_TOKENS, TEST_TOKENS)
    )
    return train_part, valid_part, test_part, VOCABULARY


# What the parent asks


def flops(model: str, params: Mapping[str, ParamValue]) -> float:
    """Floating-point operations per token, forward and backward, of WikiText-2's vocabulary.

    Matrix products only, a multiplication and an addition counting two; backward is twice forward. An RNN's
    layer has as many products of (input + hidden) x hidden as it has gates. Attention counts the whole
    square of `bptt` positions, though a causal kernel may skip half of it.
    """
    size = {name: int(params[name]) for name in ("emsize", "nhid", "nlayers", "bptt", "vocab_multiple")}
    words = -(-VOCABULARY // size["vocab_multiple"]) * size["vocab_multiple"]
    width, hidden, depth = size["emsize"], size["nhid"], size["nlayers"]
    if model == "transformer":
        products = depth * (4 * width**2 + 2 * width * hidden + 2 * size["bptt"] * width) + width * words
    else:
        inputs = [width] + [hidden] * (depth - 1)
        products = sum(GATES[model] * hidden * (given + hidden) for given in inputs) + hidden * words
    return 3.0 * 2.0 * products


def recipe_batch(model: str, params: Mapping[str, ParamValue]) -> int:
    """The preset's batch, the same for all precisions on every device."""
    return TENSORCORE_BATCH if params["preset"] == "tensorcore" else ARTICLE_BATCH


def refuse(case: Case) -> str:
    """Why this case cannot be trained: no RNN in that precision, or no Apex for it."""
    from gpubench.suite.trial import rnn_refusal

    if case.model != "transformer" and (why := rnn_refusal(case.precision, case.device)):
        return why
    if case.params["engine"] != "apex":
        return ""
    if case.precision != "fp16-master":
        return f"engine=apex: Apex's FP16_Optimizer is fp16-master; {case.precision} is engine=torch"
    if not case.device.startswith("cuda"):
        return "engine=apex: Apex's FP16_Optimizer takes CUDA tensors only"
    apex = installed()
    if apex is None:
        return "engine=apex: NVIDIA Apex is not installed; engine=torch needs none"
    if not apex.real:
        return "engine=apex: the apex here is not NVIDIA's but the package index's unrelated one"
    if not apex.can_fp16_optimizer:
        return f"engine=apex: this Apex has lost amp and fp16_utils; the last with them is {LAST_WITH_AMP}"
    return ""


SUITE = Suite(
    train=train,
    version=2,
    models=("lstm", "gru", "rnn_tanh", "rnn_relu", "transformer"),
    default_models=("lstm",),
    params={
        "preset": Param("article", "sizes of January 2019, or of February", choices=("article", "tensorcore")),
        "epochs": Param(30, "epochs of the whole run", least=1),
        "emsize": Param(200, "width of the embedding", least=1),
        "nhid": Param(200, "hidden units of a layer", least=1),
        "nlayers": Param(2, "layers", least=1),
        "nhead": Param(2, "attention heads of the transformer", least=1),
        "dropout": Param(0.2, "share of activations dropped in training"),
        "tied": Param(False, "one matrix for embedding and decoder"),
        "vocab_multiple": Param(1, "pad the vocabulary to a multiple of this", least=1),
        "bptt": Param(35, "tokens that back-propagation goes back", least=1),
        "lr": Param(20.0, "learning rate of SGD"),
        "clip": Param(0.25, "largest norm of the gradients"),
        "valid_batch": Param(10, "columns of the validation and test text", least=1),
        "engine": Param("torch", "what steps: torch, or an installed NVIDIA Apex", choices=("torch", "apex")),
        "train_tokens": Param(0, "train on the first so many tokens only; 0 is all"),
        "valid_tokens": Param(0, "validate and test on the first so many tokens only; 0 is all"),
    },
    presets={
        # The rate of 20 is that of the LSTM; these two leave every bound at it. 5 is the transformer's in the example.
        "model": {"rnn_relu": {"lr": 5.0}, "transformer": {"lr": 5.0}},
        "preset": {"tensorcore": {"emsize": 1504, "nhid": 1504, "dropout": 0.65, "vocab_multiple": 8}},
    },
    quality="perplexity",
    unit="tokens",
    recipe_batch=recipe_batch,
    train_samples=lambda params: int(params["train_tokens"]) or TRAIN_TOKENS,
    samples_per_unit=35,
    data=("wikitext-2",),
    refuse=refuse,
    flops=flops,
    # Range of 28 pairs of benchmarks/projection.py on a shared CPU; see docs/tested.md.
    projected_over_full=(0.858, 1.144),
)
