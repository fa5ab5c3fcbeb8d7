"""The text on the device, the optimizers with their learning rate, and the loop."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch

from gpubench import Clock, Trial, UserError
from gpubench.data.datasets import load_bytes
from gpubench.training import Stepper, distributed, mode_of, quiet, weighted_mean

from .network import Gpt

BETAS = (0.9, 0.95)
CLIP_NORM = 1.0
WEIGHT_DECAY = 0.1
"""Of matrices and embeddings."""
WARMUP = 0.02
"""Share of the steps in which the learning rate rises."""
SYNTHETIC_BYTES = 1 << 20
Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens, int64 (N, T), and the tokens that follow them."""


def network_of(trial: Trial) -> Gpt:
    """Return the trial's network with random weights; raises UserError if the heads do not divide the width."""
    params = trial.params
    if params.width % params.heads:
        raise UserError(f"--set width={params.width}: not a multiple of heads={params.heads}")
    return Gpt(params.layers, params.heads, params.width, params.vocabulary, params.context)


def load_text(trial: Trial) -> list[torch.Tensor]:
    """Return the bytes of the training and the validation text, uint8 (N,); raises UserError if one is too short."""
    if trial.synthetic:
        dice = torch.Generator().manual_seed(trial.seed)
        return [torch.randint(0, 256, (SYNTHETIC_BYTES,), dtype=torch.uint8, generator=dice) for _ in range(2)]
    texts = load_bytes("wikitext-2", Path(trial.data_dir))
    for split in ("train", "valid"):
        if len(texts[split]) <= trial.params.context:
            raise UserError(f"the {split} text has {len(texts[split])} bytes; give a smaller --set context")
    return [torch.from_numpy(texts[split]) for split in ("train", "valid")]


def step_tokens(trial: Trial) -> int:
    """Return the tokens of a training step of all processes."""
    tokens: int = trial.batch_size * trial.params.context * trial.case.processes
    return tokens


def steps_of(trial: Trial) -> int:
    """Return the training steps of an epoch; tokens that fill no step are left out."""
    return max(1, int(trial.params.tokens) // step_tokens(trial))


class RandomSequences:
    """Batches from random places of a text that stays on the device, as many as an epoch has."""

    def __init__(self, text: torch.Tensor, trial: Trial, device: torch.device) -> None:
        self.text, self.shape = text.to(device), (trial.batch_size, 1)
        self.dice = torch.Generator(device).manual_seed(trial.seed + (trial.rank << 32))
        self.window = torch.arange(trial.params.context + 1, device=device)
        self.steps = steps_of(trial)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        many, device = len(self.text) - len(self.window) + 1, self.text.device
        for _ in range(self.steps):
            starts = torch.randint(many, self.shape, generator=self.dice, device=device)
            sequences = self.text[starts + self.window].long()
            yield sequences[:, :-1], sequences[:, 1:]


def sequences_in_order(text: torch.Tensor, trial: Trial, device: torch.device) -> list[Batch]:
    """Return batches from the start of a text; what fills no sequence is left out."""
    context = trial.params.context
    end = max(1, min(trial.params.valid_tokens, len(text) - 1) // context) * context
    part = text[: end + 1].to(device).long()
    tokens, targets = (side.view(-1, context).split(trial.batch_size) for side in (part[:-1], part[1:]))
    return list(zip(tokens, targets, strict=True))


def tokens_of(batch: Batch) -> int:
    """Return the number of tokens that a batch predicts."""
    return batch[1].numel()


def rate_at(step: int, steps: int, warmup_steps: int) -> float:
    """Return the share of the highest learning rate: a linear rise, then half a cosine from 1 to 0.1."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    progress = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))


def optimizers_of(trial: Trial, network: Gpt) -> list[torch.optim.Optimizer]:
    """Return AdamW, after Muon if the trial asks for it. Raises UserError if this torch has no Muon."""
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
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    return [*optimizers, torch.optim.AdamW(groups, lr=params.lr, betas=BETAS, fused=True)]


def set_rates(optimizers: list[torch.optim.Optimizer], share: float) -> None:
    """Set each optimizer's learning rate to a share of its highest."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("highest_lr", group["lr"]) * share


def train_gpt(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the training; return the validation loss in nats per token."""
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    train_text, valid_text = load_text(trial)
    loader = RandomSequences(train_text, trial, device)
    valid = sequences_in_order(valid_text, trial, device)
    valid_tokens = sum(map(tokens_of, valid))
    torch.manual_seed(trial.seed)
    network = network_of(trial).to(device)
    mode.prepare(network)
    optimizers = optimizers_of(trial, network)
    stepper = Stepper(mode, network, optimizers, clock, clip_norm=CLIP_NORM, loss_scale=params.loss_scale)
    model = distributed(network, trial)
    if params.compile:
        model.compile()
    steps, taken = len(loader) * params.epochs, 0

    def step(batch: Batch) -> None:
        set_rates(optimizers, rate_at(taken, steps, int(WARMUP * steps)))
        with quiet(model, clock.together):
            with mode.autocast():
                loss = model(*batch)
            stepper.backward(loss)
        stepper.step()

    loss = math.nan
    for _ in clock.epochs(params.epochs):
        for batch in clock.steps(loader, "train", len(loader) * step_tokens(trial), count=tokens_of):
            step(batch)
            taken += 1
        losses = []
        with torch.no_grad(), mode.autocast():
            for batch in clock.steps(valid, "valid", valid_tokens, count=tokens_of):
                losses.append(network(*batch) * (tokens_of(batch) / valid_tokens))
        (loss,) = weighted_mean([float(torch.stack(losses).sum())], valid_tokens, trial)
    for batch in clock.resident():
        step(batch)
    return {"loss": loss} if clock.complete else {}
