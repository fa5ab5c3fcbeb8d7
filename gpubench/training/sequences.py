"""Trains a language model on sequences from random places of a text, and validates it on sequences in order.

Trials have the parameters context, tokens, valid_tokens, epochs, lr, loss_scale, goal (suites `gpt`, `finetune`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from gpubench.data.datasets import load_bytes
from gpubench.errors import UserError
from gpubench.suite.suite import Blueprint
from gpubench.suite.trial import Trial
from gpubench.training.clock.clock import Clock
from gpubench.training.precision import mode_of
from gpubench.training.process_group import distributed, quiet, weighted_mean
from gpubench.training.stepper import Stepper

BYTES = 256
"""Size of the vocabulary of a text that is read byte by byte."""
SYNTHETIC_TOKENS = 1 << 20
CLIP_NORM = 1.0
Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens, int64 (N, T), and the tokens that follow them."""
Optimizers = Sequence[torch.optim.Optimizer]
Rate = Callable[[int, int], float]
"""Given a step's number and the number of all steps, returns the learning rate as a share of the highest one."""


def load_text(trial: Trial, vocabulary: int = BYTES) -> list[torch.Tensor]:
    """Return the bytes of the training and the validation text, uint8 (N,); raises UserError if one is too short.

    Synthetic texts are random tokens: int32 if the vocabulary has more than 256, else uint8.
    """
    if trial.synthetic:
        dice = torch.Generator().manual_seed(trial.seed)
        dtype = torch.uint8 if vocabulary <= BYTES else torch.int32
        return [torch.randint(0, vocabulary, (SYNTHETIC_TOKENS,), dtype=dtype, generator=dice) for _ in range(2)]
    texts = load_bytes("wikitext-2", Path(trial.data_dir))
    for split in ("train", "valid"):
        if len(texts[split]) <= trial.params.context:
            raise UserError(f"the {split} text has {len(texts[split])} bytes; give a smaller --set context")
    return [torch.from_numpy(texts[split]) for split in ("train", "valid")]


def steps_of(trial: Trial) -> int:
    """Return the training steps of an epoch, without tokens that do not fill a step. UserError if they fill none."""
    tokens, of_step = trial.params.tokens, trial.batch_size * trial.params.context * trial.case.processes
    if tokens < of_step:
        raise UserError(f"an epoch has {tokens} tokens, a step {of_step}; give a smaller --batch or more --set tokens")
    return int(tokens // of_step)


class RandomSequences:
    """The batches of an epoch, from random places of a text that stays on the device."""

    def __init__(self, text: torch.Tensor, trial: Trial, device: torch.device) -> None:
        self.text, self.shape = text.to(device), (trial.batch_size, 1)
        self.dice = torch.Generator(device).manual_seed(trial.seed + (trial.rank << 32))
        self.window = torch.arange(trial.params.context + 1, device=device)
        self.steps = steps_of(trial)
        self.tokens = self.steps * trial.batch_size * trial.params.context * trial.case.processes
        """Tokens of an epoch, in all processes."""

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        many, device = len(self.text) - len(self.window) + 1, self.text.device
        for _ in range(self.steps):
            starts = torch.randint(many, self.shape, generator=self.dice, device=device)
            sequences = self.text[starts + self.window].long()
            yield sequences[:, :-1], sequences[:, 1:]


def sequences_in_order(text: torch.Tensor, trial: Trial, device: torch.device) -> list[Batch]:
    """Return batches of the first `valid_tokens` of a text, in order, without tokens that do not fill a sequence."""
    context = trial.params.context
    end = max(1, min(trial.params.valid_tokens, len(text) - 1) // context) * context
    part = text[: end + 1].to(device).long()
    tokens, targets = (side.view(-1, context).split(trial.batch_size) for side in (part[:-1], part[1:]))
    return list(zip(tokens, targets, strict=True))


def tokens_of(batch: Batch) -> int:
    """Return the number of tokens that a batch predicts."""
    return batch[1].numel()


def set_rates(optimizers: Optimizers, share: float) -> None:
    """Set each optimizer's learning rate to a share of its highest."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("highest_lr", group["lr"]) * share


def blueprint_of(
    trial: Trial, network: torch.nn.Module, optimizers_of: Callable[[], Optimizers], rate_at: Rate
) -> Blueprint:
    """Return the blueprint: the network, its optimizers, and the learning rate over all steps of a run."""
    params, steps = trial.params, steps_of(trial)
    tokens = torch.zeros(2, params.context, dtype=torch.int64)
    return Blueprint(
        network=network,
        inputs=(tokens, tokens),
        samples=2 * params.context,
        epochs=params.epochs,
        schedule={"learning rate": lambda epoch: params.lr * rate_at(int(epoch * steps), steps * params.epochs)},
        optimizers=optimizers_of,
    )


def train_on_text(
    trial: Trial,
    clock: Clock,
    texts: Sequence[torch.Tensor],
    network: torch.nn.Module,
    optimizers: Optimizers,
    rate_at: Rate,
    *,
    watch: AbstractContextManager[object] | None = None,
) -> dict[str, float]:
    """Train a network that returns its loss; return the validation `loss` in nats per token, or {} for a sampled run.

    A full run on real data ends with the first epoch whose validation loss is at most the parameter `goal`. `texts` are
    the tokens of training and validation. The network is on the device and prepared for its precision. `watch` is the
    context of the first step on a resident batch.
    """
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    loader = RandomSequences(texts[0], trial, device)
    valid = sequences_in_order(texts[1], trial, device)
    valid_tokens = sum(map(tokens_of, valid))  # of each process: all validate the same tokens
    stepper = Stepper(mode, network, optimizers, clock, clip_norm=CLIP_NORM, loss_scale=params.loss_scale)
    model = distributed(network, trial)
    if getattr(params, "compile", False):
        model.compile()
    steps, taken = len(loader) * params.epochs, 0

    def step(batch: Batch) -> None:
        set_rates(optimizers, rate_at(taken, steps))
        with quiet(model, clock.together):
            with mode.autocast():
                loss = model(*batch)
            stepper.backward(loss)
        stepper.step()

    loss = math.nan
    for _ in clock.epochs(params.epochs):
        for batch in clock.steps(loader, "train", loader.tokens, count=tokens_of):
            step(batch)
            taken += 1
        losses = []
        with torch.no_grad(), mode.autocast():
            for batch in clock.steps(valid, "valid", valid_tokens * trial.case.processes, count=tokens_of):
                losses.append(network(*batch) * (tokens_of(batch) / valid_tokens))
        (loss,) = weighted_mean([float(torch.stack(losses).sum())], valid_tokens, trial)
        if trial.teaches and loss <= params.goal:
            break
    for number, batch in enumerate(clock.resident()):
        with watch if watch and number == 0 else nullcontext():
            step(batch)
    return {"loss": loss} if clock.complete else {}
