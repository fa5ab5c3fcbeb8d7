"""Steps of torch or of NVIDIA Apex, validation, and the loop."""

import math
from collections.abc import Iterable

import torch
from torch.nn.functional import cross_entropy

from gpubench import Blueprint, Clock, Trial
from gpubench.training import Mode, Notes, Stepper, Tally, dtypes_of, mode_of

from . import VOCABULARY
from .data import Batch, load_text, padded, tokens_of
from .networks import State, network

SLOW_DOWN = 4
"""The learning rate is divided by this when validation does not improve."""


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
    """Train; return the best epoch's perplexity in validation, and the test text's with the weights of that epoch."""
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
            # In the host's memory, which leaves the device's to the batch.
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
