"""Precision and clock as fastai callbacks, for suites that train with fastai."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any

from fastai.callback.core import Callback, CancelFitException, CancelStepException
from fastai.learner import Learner
from fastai.torch_core import to_device

from gpubench.suite.trial import Trial
from gpubench.training.clock.clock import Clock
from gpubench.training.precision import Mode, mode_of
from gpubench.training.process_group import distributed, quiet
from gpubench.training.stepper import Stepper


class PrecisionCallback(Callback):
    """Trains in any precision on any device; fastai's MixedPrecision and NonNativeMixedPrecision need CUDA.

    Forward and loss of training and validation run under the mode's autocast, or in the model's 16-bit dtype; the
    loss gets the prediction in float32. A Stepper scales the loss, and takes the step if fastai's step is not enough.
    """

    order = 10  # after fastai's own preparations, before its recorder
    stepper: Stepper

    def __init__(self, mode: Mode, clock: Clock, loss_scale: float = 0) -> None:
        super().__init__()
        self.mode, self.clock, self.loss_scale = mode, clock, loss_scale
        self._opt: object = None
        self._context: AbstractContextManager[object] | None = None

    def before_fit(self) -> None:
        """If the optimizer is new, cast the model and make a Stepper. End an autocast that an exception left open."""
        self.after_loss()
        if self._opt is self.opt:
            return  # a second fit continues with the same master weights
        self.mode.prepare(self.model)
        self._opt = self.opt
        # fastai wraps torch's optimizers; GradScaler and fused steps need the inner one.
        inner: Any = getattr(self.opt, "opt", self.opt)
        self.stepper = Stepper(self.mode, self.model, inner, self.clock, loss_scale=self.loss_scale)

    def before_batch(self) -> None:
        """Cast the inputs to the model's dtype, and enter autocast for this batch."""
        self.learn.xb = tuple(self.mode.input(x) for x in self.xb)
        self._context = self.mode.autocast()
        self._context.__enter__()

    def after_pred(self) -> None:
        """Cast the prediction to float32 for the loss."""
        self.learn.pred = self.pred.float()

    def after_loss(self) -> None:
        """Leave autocast, which the backward pass does not need: it uses the dtypes of the forward pass."""
        if self._context is not None:
            self._context.__exit__(None, None, None)
            self._context = None

    after_cancel_batch = after_fit = after_loss

    def before_backward(self) -> None:
        """Scale the loss, so that small fp16 gradients do not become zero."""
        self.learn.loss_grad = self.stepper.scaled(self.loss_grad)

    def before_step(self) -> None:
        """Take the step instead of fastai if it needs more than the optimizer (a loss scale, master weights)."""
        if not self.stepper.plain:
            self.stepper.step()
            raise CancelStepException


class ClockCallback(Callback):
    """Passes fastai's epochs and batches through the Clock."""

    order = -100  # the clock starts before any other callback

    def __init__(self, clock: Clock, train_samples: int, valid_samples: int) -> None:
        super().__init__()
        self.clock = clock
        self.samples = {"train": train_samples, "valid": valid_samples}

    def before_epoch(self) -> None:
        """Tell the clock that an epoch begins."""
        self.clock.begin_epoch(self.epoch, self.n_epoch)

    def before_train(self) -> None:
        """Pass the training batches through the clock."""
        self.learn.dl = _Timed(self.dl, self.clock, "train", self.samples["train"])

    def before_validate(self) -> None:
        """Pass the validation batches through the clock."""
        self.learn.dl = _Timed(self.dl, self.clock, "valid", self.samples["valid"])


class EpochEnd(Callback):
    """Ends epochs for ClockCallback, after all other callbacks, and ends the fit when the clock has enough laps."""

    order = 1000

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def after_epoch(self) -> None:
        """End the epoch, and the fit if the clock has enough laps."""
        self.clock.end_epoch()
        if self.clock.enough and self.epoch + 1 < self.n_epoch:
            raise CancelFitException


class LossWeight(Callback):
    """Weights the loss if processes have shares of different sizes (see `shards`)."""

    order = 5  # before the loss is scaled

    def before_backward(self) -> None:
        """Weight the loss, so that the mean of all processes' gradients is the gradient of the step's mean loss."""
        if self.dl is not None:  # a resident batch needs no weight
            self.learn.loss_grad = self.loss_grad * self.dl.shards[self.iter].weight


class _Timed:
    """A loader whose batches pass through the clock."""

    def __init__(self, loader: Collection[object], clock: Clock, phase: str, samples: int) -> None:
        self._loader, self._clock, self._phase, self._samples = loader, clock, phase, samples

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[object]:
        return self._clock.steps(self._loader, self._phase, self._samples)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def callbacks(
    clock: Clock, mode: Mode, train_samples: int, valid_samples: int, loss_scale: float = 0
) -> list[Callback]:
    """Return the callbacks that a suite adds to its Learner; `loss_scale` as in Stepper."""
    precision = PrecisionCallback(mode, clock, loss_scale)
    return [ClockCallback(clock, train_samples, valid_samples), precision, EpochEnd(clock)]


def share(learn: Learner, trial: Trial) -> None:
    """Make the Learner average its gradients over all processes of the trial; its train loader must have `shards`.

    Call it after freezing layers. Does nothing for a single process.
    """
    if trial.case.processes > 1:
        # Before DDP, which keeps references to the weights.
        mode_of(trial.case.precision, trial.case.device).prepare(learn.model)
        learn.model = distributed(learn.model, trial)
        learn.add_cb(LossWeight())


def train_resident(learn: Learner, clock: Clock) -> None:
    """Repeat the Learner's training step after a fit, on one batch that stays on the device."""
    learn.model.train()
    learn.training = True
    device = next(learn.model.parameters()).device  # torch's loaders have no device
    resident = None
    for batch in clock.resident():
        # A batch of a torch DataLoader is in the host's memory. It is copied once, so that these laps have no copies.
        resident = to_device(batch, device) if resident is None else resident
        with quiet(learn.model, clock.together):
            learn.one_batch(0, resident)
