"""The optimizer with its learning rate, the proof of QLoRA, and the loop."""

import math
from contextlib import nullcontext
from typing import Any

import torch
from tokenizers import Tokenizer

# torch documents this extension point ("Extending PyTorch"), despite the underscore in its path.
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench import Blueprint, Clock, Trial
from gpubench.training import Stepper, distributed, mode_of, quiet, weighted_mean
from gpubench.training.sequences import Batch, RandomSequences, load_text, sequences_in_order, steps_of, tokens_of

from . import SIZES
from .network import network_of, weights_folder

CLIP_NORM = 1.0
WARMUP = 0.03
"""Share of the steps in which the learning rate rises."""
FOUR_BIT_CALLS = {"gemm_4bit", "dequantize_4bit"}
"""Operators of bitsandbytes that read 4-bit weights."""


def texts_of(trial: Trial) -> list[torch.Tensor]:
    """Return the tokens of the training and the validation text, integers (N,): bytes, or those of given weights."""
    if trial.synthetic or trial.case.weights in {"", "random"}:
        return load_text(trial, SIZES[trial.case.model].vocabulary)
    tokenizer = Tokenizer.from_file(str(weights_folder(trial) / "tokenizer.json"))
    texts = [bytes(text.numpy()).decode() for text in load_text(trial)]
    return [torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]


def rate_at(step: int, steps: int) -> float:
    """Return the share of the highest learning rate: it rises linearly and then stays, as in QLoRA."""
    return min(1.0, (step + 1) / (WARMUP * steps + 1))


def optimizer_of(trial: Trial, network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return AdamW for the weights that are trained."""
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    # A GradScaler waits for the device in every step of an optimizer that is not fused.
    return torch.optim.AdamW(trained, lr=trial.params.lr, weight_decay=0.0, fused=True)


def blueprint(trial: Trial) -> Blueprint:
    """Return the network, its optimizer, and the learning rate, in as many steps as a run takes."""
    params, steps = trial.params, steps_of(trial)
    tokens = torch.zeros(2, params.context, dtype=torch.int64)
    network = network_of(trial, tokens.device, only_shapes=True)
    return Blueprint(
        network=network,
        inputs=(tokens, tokens),
        samples=2 * params.context,
        epochs=params.epochs,
        schedule={"learning rate": lambda epoch: params.lr * rate_at(int(epoch * steps), steps * params.epochs)},
        optimizers=lambda: [optimizer_of(trial, network)],
    )


class FourBitWatch(TorchDispatchMode):
    """Counts the calls of bitsandbytes that read 4-bit weights."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the call, and count it if it is one of them."""
        self.calls += func.__name__.partition(".")[0] in FOUR_BIT_CALLS
        return func(*args, **(kwargs or {}))


def train(trial: Trial, clock: Clock) -> dict[str, float]:
    """Run the training; return the validation loss in nats per token."""
    params, device = trial.params, torch.device(trial.case.device)
    mode = mode_of(trial.case.precision, trial.case.device)
    train_text, valid_text = texts_of(trial)
    loader = RandomSequences(train_text, trial, device)
    valid = sequences_in_order(valid_text, trial, device)
    valid_tokens = sum(map(tokens_of, valid))
    torch.manual_seed(trial.seed)
    network = network_of(trial, device)
    mode.prepare(network)
    optimizer = optimizer_of(trial, network)
    stepper = Stepper(mode, network, optimizer, clock, clip_norm=CLIP_NORM, loss_scale=params.loss_scale)
    model = distributed(network, trial)
    steps, taken = len(loader) * params.epochs, 0

    def step(batch: Batch) -> None:
        for group in optimizer.param_groups:
            group["lr"] = params.lr * rate_at(taken, steps)
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
            for batch in clock.steps(valid, "valid", valid_tokens, count=tokens_of):
                losses.append(network(*batch) * (tokens_of(batch) / valid_tokens))
        (loss,) = weighted_mean([float(torch.stack(losses).sum())], valid_tokens, trial)
    watch = FourBitWatch()
    for number, batch in enumerate(clock.resident()):
        with watch if number == 0 else nullcontext():
            step(batch)
    if params.method == "qlora" and not watch.calls:
        raise RuntimeError(f"asked for qlora, but no call of {' or '.join(sorted(FOUR_BIT_CALLS))} was seen")
    return {"loss": loss} if clock.complete else {}
